#include <algorithm>

#include "ops/op_def.h"
#include "ops/upsample.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) { return InferUpsample(c, c.attr(0), c.attr(1), "upsample_nearest2d"); }

// Computed in f32 for every type, so that the element taken is the one that PyTorch takes.
int64_t Nearest(int64_t at, float step, int64_t size) { return std::min(static_cast<int64_t>(std::floor(static_cast<float>(at) * step)), size - 1); }

Status Reference(const KernelContext& c) {
  const TensorView &in = c.in(0), &out = c.out();
  const int64_t in_h = in.sizes[2], in_w = in.sizes[3], out_h = out.sizes[2], out_w = out.sizes[3];
  const float step_h = UpsampleStep<float>(c.attr(1), 0, in_h, out_h), step_w = UpsampleStep<float>(c.attr(1), 1, in_w, out_w);
  const size_t bytes = ByteSize(in.dtype);
  for (int64_t i = 0; i < out.numel(); ++i) {
    const int64_t plane = i / (out_h * out_w);
    const int64_t from = (plane * in_h + Nearest(i / out_w % out_h, step_h, in_h)) * in_w + Nearest(i % out_w, step_w, in_w);
    std::memcpy(out.as<std::byte>() + static_cast<size_t>(i) * bytes, in.as<const std::byte>() + static_cast<size_t>(from) * bytes, bytes);
  }
  return OkStatus();
}

}  // namespace

constinit const OpDef kOpUpsampleNearest2d = {"upsample_nearest2d",
                                              "upsample_nearest2d(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
                                              "",
                                              "aten::upsample_nearest2d.vec_out",
                                              kPure,
                                              Infer,
                                              Reference};

}  // namespace dovetail
