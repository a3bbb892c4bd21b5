#include "ops/dispatch.h"
#include "ops/infer_util.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& ctx) {
  DT_RETURN_IF_ERROR(RequireRank(ctx.operand(0), 2, 3, "reflection_pad1d"));
  const std::span<const Dim> padding = DimsOf(ctx.attr(0));
  if (padding.size() != 2) return InvalidArgument("reflection_pad1d: ", padding.size(), " padding amounts; it takes two");
  Shape shape = ctx.operand(0).shape;
  Dim& width = shape[shape.rank() - 1];
  for (Dim p : padding) {
    if (p.is_constant() && p.value() < 0) return InvalidArgument("reflection_pad1d: negative padding ", p.value());
    if (p.is_constant() && width.is_constant() && p.value() >= width.value())
      return InvalidArgument("reflection_pad1d: padding ", p.value(), " must be less than the width ", width.value());
  }
  width = width + padding[0] + padding[1];
  return SetMovedResult(ctx, shape);
}

Status Reference(const KernelContext& ctx) {
  const TensorView &in = ctx.in(0), &out = ctx.out();
  const int64_t width = in.sizes[in.rank - 1], out_width = out.sizes[out.rank - 1], left = DimsOf(ctx.attr(0))[0].value();
  const int64_t rows = width == 0 ? 0 : in.numel() / width;
  const size_t bytes = ByteSize(in.dtype);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < out_width; ++i) {
      int64_t from = i < left ? left - i : i - left;
      if (from >= width) from = 2 * (width - 1) - from;
      std::memcpy(out.as<std::byte>() + static_cast<size_t>(r * out_width + i) * bytes,
                  in.as<const std::byte>() + static_cast<size_t>(r * width + from) * bytes, bytes);
    }
  }
  return OkStatus();
}

}  // namespace

constinit const OpDef kOpReflectionPad1d = {"reflection_pad1d",
                                            "reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor",
                                            "aten.reflection_pad1d.default",
                                            "aten::reflection_pad1d.out",
                                            kDataMovement,
                                            Infer,
                                            Reference};

}  // namespace dovetail
