#include "ops/advanced_index.h"
#include "ops/dispatch.h"
#include "ops/infer_util.h"
#include "ops/op_def.h"

namespace dovetail {

Status InferIndexPut(const InferContext& c) {
  const TensorType &self = c.operand(0), &values = c.operands.back();
  DT_ASSIGN_OR_RETURN(const IndexLayout layout, LayOutIndexed(self.shape, c.operands.subspan(1, c.operands.size() - 2)));
  // Integers with a scale are moved, not added.
  if (self.per_tensor() && (c.attr(0).Bool() || values.quant != self.quant))
    return InvalidArgument("index_put of ", values.ToString(), " into ", self.ToString(), "; it replaces elements of the same scale and zero point");
  if (values.dtype != self.dtype) return InvalidArgument("index_put of ", Name(values.dtype), " values into a tensor of ", Name(self.dtype));
  const Result<Shape> shape = Broadcast(layout.result, values.shape);
  if (!shape.ok() || !(*shape == layout.result))
    return InvalidArgument("values of shape [", values.shape.ToString(), "] do not broadcast to the indexed shape [", layout.result.ToString(), "]");
  return SetMovedResult(c, self.shape);
}

Status ReferenceIndexPut(const KernelContext& c) {
  const TensorView &self = c.in(0), &values = c.inputs.back(), &out = c.out();
  const IndexWalker walker(self, c.inputs.subspan(1, c.inputs.size() - 2));
  if (out.data != self.data) CopyBytes(out.data, self.data, self.nbytes());
  const size_t skipped = walker.shape().size() - values.rank;
  return DispatchConvertible(self.dtype, [&]<class T>() -> Status {
    for (int64_t i = 0; i < walker.size(); ++i) {
      DT_ASSIGN_OR_RETURN(const int64_t to, walker.Offset(i));
      int64_t from = 0, rest = i, step = 1;
      for (size_t k = values.rank; k-- > 0; rest /= walker.shape()[skipped + k]) {
        if (values.sizes[k] != 1) from += rest % walker.shape()[skipped + k] * step;
        step *= values.sizes[k];
      }
      T& element = out.as<T>()[to];
      const T value = values.as<T>()[from];
      element = c.attr(0).Bool() ? Convert<T>(Load(element) + Load(value)) : value;
    }
    return OkStatus();
  });
}

constinit const OpDef kOpIndexPut = {"index_put",
                                     "index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
                                     "aten.index_put.default aten._unsafe_index_put.default",
                                     "aten::index_put.out",
                                     kDataMovement,
                                     InferIndexPut,
                                     ReferenceIndexPut};

}  // namespace dovetail
