#include "ops/advanced_index.h"
#include "ops/dispatch.h"
#include "ops/infer_util.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType &self = c.operand(0), &index = c.operand(1);
  DT_ASSIGN_OR_RETURN(const size_t dim, NormalizeAxis(c.attr(0).Int(), self.rank()));
  DT_RETURN_IF_ERROR(RequireRank(index, 0, 1, "index_select"));
  DT_RETURN_IF_ERROR(RequireIndex(index, "index_select"));
  Shape shape = self.shape;
  if (self.rank() != 0) shape[dim] = index.shape.numel();
  else if (index.shape.numel() != Dim(1)) return InvalidArgument("index_select of a tensor of rank 0 takes one index, not ", index.shape.numel().ToString());
  return SetMovedResult(c, shape);
}

Status Reference(const KernelContext& c) {
  const TensorView &self = c.in(0), &index = c.in(1);
  const int64_t axis = c.attr(0).Int();
  const size_t dim = static_cast<size_t>(axis < 0 ? axis + self.rank : axis);
  const int64_t size = self.rank ? self.sizes[dim] : 1, count = index.numel(), inner = self.rank ? self.stride(dim) : 1;
  int64_t outer = 1;
  for (size_t i = 0; i < dim; ++i) outer *= self.sizes[i];
  const size_t run = static_cast<size_t>(inner) * ByteSize(self.dtype);
  for (int64_t k = 0; k < count; ++k) {
    const int64_t at = IndexAt(index, k);
    if (at < 0 || at >= size) return IndexOutOfBounds(at, dim, size);
    for (int64_t o = 0; o < outer; ++o)
      CopyBytes(c.out().as<std::byte>() + (o * count + k) * run, self.as<std::byte>() + (o * size + at) * run, run);
  }
  return OkStatus();
}

}  // namespace

constinit const OpDef kOpIndexSelect = {"index_select",
                                        "index_select(Tensor self, int dim, Tensor index) -> Tensor",
                                        "aten.index_select.default",
                                        "aten::index_select.out",
                                        kDataMovement,
                                        Infer,
                                        Reference};

}  // namespace dovetail
