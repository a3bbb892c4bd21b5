#include "ops/infer_util.h"
#include "ops/strided_copy.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& ctx) {
  const Shape& from = ctx.operand(0).shape;
  const std::span<const Dim> dims = DimsOf(ctx.attr(0));
  if (dims.size() != from.rank()) return InvalidArgument("permute: ", dims.size(), " dims for a tensor of rank ", from.rank());
  Shape to;
  std::array<bool, kMaxRank> seen{};
  for (Dim d : dims) {
    if (!d.is_constant()) return InvalidArgument("permute: dimension ", d.ToString(), " is not a constant");
    DT_ASSIGN_OR_RETURN(const size_t axis, NormalizeAxis(d.value(), from.rank()));
    if (seen[axis]) return InvalidArgument("permute: dimension ", axis, " is given twice");
    seen[axis] = true;
    to.push_back(from[axis]);
  }
  return SetMovedResult(ctx, to);
}

Status Reference(const KernelContext& ctx) {
  const TensorView &in = ctx.in(0), &out = ctx.out();
  StridedCopy copy = StridedCopy::Between(out, out, out);
  for (size_t d = 0; d < out.rank; ++d) {
    DT_ASSIGN_OR_RETURN(const size_t axis, NormalizeAxis(DimsOf(ctx.attr(0))[d].value(), in.rank));
    copy.from_strides[d] = in.stride(axis);
  }
  copy.Run(out.data, in.data, ByteSize(out.dtype));
  return OkStatus();
}

}  // namespace

constinit const OpDef kOpPermute = {"permute",
                                    "permute(Tensor self, int[] dims) -> Tensor",
                                    "aten.permute.default aten.permute_copy.default",
                                    "aten::permute_copy.out",
                                    kDataMovement,
                                    Infer,
                                    Reference};

}  // namespace dovetail
