// `pad` holds (before, after) of the last dimension, then of the one before it, and so on; a negative amount crops.
#include <algorithm>

#include "ops/dispatch.h"
#include "ops/infer_util.h"
#include "ops/strided_copy.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& ctx) {
  Shape shape = ctx.operand(0).shape;
  const std::span<const Dim> pad = DimsOf(ctx.attr(0));
  if (pad.size() % 2 != 0 || pad.size() / 2 > shape.rank())
    return InvalidArgument("constant_pad_nd: ", pad.size(), " amounts for a tensor of rank ", shape.rank(), "; each dimension takes two");
  for (Dim p : pad)  // so that sums of amounts and their negations fit
    if (p.is_constant() && (p.value() < -INT32_MAX || p.value() > INT32_MAX)) return InvalidArgument("constant_pad_nd: an amount of ", p.value());
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    Dim& size = shape[shape.rank() - 1 - i];
    const Dim padded = size + pad[2 * i] + pad[2 * i + 1];
    if (padded.is_constant() && padded.value() < 0)
      return InvalidArgument("constant_pad_nd: ", size.ToString(), " elements with pad amounts ", pad[2 * i].ToString(), " and ",
                             pad[2 * i + 1].ToString(), " make a negative size");
    size = padded;
  }
  return SetMovedResult(ctx, shape);
}

Status Reference(const KernelContext& ctx) {
  const TensorView &in = ctx.in(0), &out = ctx.out();
  DT_RETURN_IF_ERROR(DispatchElement(out.dtype, [&]<class T>() {
    std::fill_n(out.as<T>(), out.numel(), Convert<T>(ScalarAs<T>(ctx.attr(1))));
    return OkStatus();
  }));
  StridedCopy copy = StridedCopy::Between(out, in, in);
  const std::span<const Dim> pad = DimsOf(ctx.attr(0));
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const size_t d = in.rank - 1 - i;
    const int64_t before = pad[2 * i].value(), after = pad[2 * i + 1].value();
    const int64_t cropped = std::max<int64_t>(-before, 0) + std::max<int64_t>(-after, 0);
    copy.sizes[d] = std::max<int64_t>(in.sizes[d] - cropped, 0);
    copy.from_offset += std::max<int64_t>(-before, 0) * in.stride(d);
    copy.to_offset += std::max<int64_t>(before, 0) * out.stride(d);
  }
  copy.Run(out.data, in.data, ByteSize(out.dtype));
  return OkStatus();
}

}  // namespace

constinit const OpDef kOpConstantPadNd = {"constant_pad_nd",
                                          "constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor",
                                          "aten.constant_pad_nd.default",
                                          "aten::constant_pad_nd.out",
                                          kDataMovement,
                                          Infer,
                                          Reference};

}  // namespace dovetail
