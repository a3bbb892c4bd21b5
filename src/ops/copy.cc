// Overwrites self with src, broadcast and converted.
#include "ops/elementwise.h"
#include "ops/infer_util.h"
#include "ops/strided_copy.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& ctx) {
  const TensorType &self = ctx.operand(0), &src = ctx.operand(1);
  DT_ASSIGN_OR_RETURN(const Shape shape, Broadcast(self.shape, src.shape));
  if (!(shape == self.shape))
    return InvalidArgument("copy_: [", src.shape.ToString(), "] does not broadcast to [", self.shape.ToString(), "]");
  if (self.dtype != src.dtype && (IsComplex(self.dtype) || IsComplex(src.dtype)))
    return Unsupported("copy_: no conversion from ", Name(src.dtype), " to ", Name(self.dtype));
  ctx.results[0] = self;
  return OkStatus();
}

Status Reference(const KernelContext& ctx) {
  const TensorView &src = ctx.in(1), &out = ctx.out();
  if (src.dtype != out.dtype) {
    return DispatchConvertible(out.dtype, [&]<class T>() {
      const Reader<T> from(src);
      ForEachBroadcast<1>(out, {src}, [&](int64_t i, const auto& at) { out.as<T>()[i] = Convert<T>(from[at[0]]); });
      return OkStatus();
    });
  }
  const size_t added = out.rank - src.rank;
  StridedCopy copy = StridedCopy::Between(out, out, out);
  for (size_t d = 0; d < out.rank; ++d) copy.from_strides[d] = d < added || src.sizes[d - added] == 1 ? 0 : src.stride(d - added);
  copy.Run(out.data, src.data, ByteSize(out.dtype));
  return OkStatus();
}

}  // namespace

constinit const OpDef kOpCopy = {"copy_",
                                 "copy_(Tensor(a!) self, Tensor src, bool non_blocking=False) -> Tensor(a!)",
                                 "",
                                 "aten::copy_",
                                 kPure,
                                 Infer,
                                 Reference};

}  // namespace dovetail
