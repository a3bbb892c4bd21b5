#include "ops/infer_util.h"
#include "ops/strided_copy.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& ctx) {
  Shape shape = ctx.operand(0).shape;
  if (shape.empty()) return InvalidArgument("slice: a tensor of rank 0 has no dimension to slice");
  DT_ASSIGN_OR_RETURN(const size_t axis, NormalizeAxis(ctx.attr(0).Int(), shape.rank()));
  DT_ASSIGN_OR_RETURN(const SliceRange range, ResolveSlice(shape[axis], ctx.attr(1), ctx.attr(2), ctx.attr(3)));
  shape[axis] = range.length;
  return SetMovedResult(ctx, shape);
}

Status Reference(const KernelContext& ctx) {
  const TensorView &in = ctx.in(0), &out = ctx.out();
  DT_ASSIGN_OR_RETURN(const size_t axis, NormalizeAxis(ctx.attr(0).Int(), in.rank));
  DT_ASSIGN_OR_RETURN(const SliceRange range, ResolveSlice(in.sizes[axis], ctx.attr(1), ctx.attr(2), ctx.attr(3)));
  StridedCopy copy = StridedCopy::Between(out, in, out);
  copy.from_offset = range.start.value() * in.stride(axis);
  // With one element there is no next one, and a huge step would overflow.
  if (out.sizes[axis] > 1) copy.from_strides[axis] *= range.step;
  copy.Run(out.data, in.data, ByteSize(out.dtype));
  return OkStatus();
}

}  // namespace

constinit const OpDef kOpSlice = {"slice",
                                  "slice(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
                                  "aten.slice.Tensor aten.slice_copy.Tensor",
                                  "aten::slice_copy.Tensor_out",
                                  kDataMovement,
                                  Infer,
                                  Reference};

}  // namespace dovetail
