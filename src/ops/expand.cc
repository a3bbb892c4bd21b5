#include "ops/infer_util.h"
#include "ops/strided_copy.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& ctx) {
  const Shape& from = ctx.operand(0).shape;
  const std::span<const Dim> sizes = DimsOf(ctx.attr(0));
  if (sizes.size() > kMaxRank) return Unsupported("expand to rank ", sizes.size(), "; at most ", kMaxRank, " dimensions are supported");
  if (sizes.size() < from.rank()) return InvalidArgument("expand: ", sizes.size(), " sizes for [", from.ToString(), "]");
  const size_t added = sizes.size() - from.rank();
  Shape to;
  for (size_t d = 0; d < sizes.size(); ++d) {
    Dim size = sizes[d];
    if (d >= added) {
      const Dim own = from[d - added];
      if (size == Dim(-1)) size = own;
      if (size != own && own != Dim(1))
        return InvalidArgument("expand: dimension ", d - added, " of [", from.ToString(), "] is not 1 and cannot become ", size.ToString());
    }
    if (size.is_constant() && size.value() < 0) return InvalidArgument("expand: size ", size.value(), " of dimension ", d);
    to.push_back(size);
  }
  return SetMovedResult(ctx, to);
}

Status Reference(const KernelContext& ctx) {
  const TensorView &in = ctx.in(0), &out = ctx.out();
  const size_t added = out.rank - in.rank;
  StridedCopy copy = StridedCopy::Between(out, out, out);
  for (size_t d = 0; d < out.rank; ++d) copy.from_strides[d] = d < added || in.sizes[d - added] == 1 ? 0 : in.stride(d - added);
  copy.Run(out.data, in.data, ByteSize(out.dtype));
  return OkStatus();
}

}  // namespace

constinit const OpDef kOpExpand = {"expand",
                                   "expand(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor",
                                   "aten.expand.default aten.expand_copy.default",
                                   "aten::expand_copy.out",
                                   kDataMovement,
                                   Infer,
                                   Reference};

}  // namespace dovetail
