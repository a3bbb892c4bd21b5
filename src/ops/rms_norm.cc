#include <cmath>

#include "ops/dispatch.h"
#include "ops/infer_util.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType &input = c.operand(0), &weight = c.operand(1);
  DT_RETURN_IF_ERROR(RequireRank(input, 1, kMaxRank, "rms_norm"));
  DT_RETURN_IF_ERROR(RequireFloat(input, "rms_norm"));
  if (weight.dtype != input.dtype || !(weight.shape == Shape{input.shape.back()}))
    return InvalidArgument("rms_norm of ", input.ToString(), " with a weight ", weight.ToString(), "; it must be ", Name(input.dtype), "[",
                           input.shape.back().ToString(), "]");
  return SetResult(c, 0, input.dtype, input.shape);
}

Status Reference(const KernelContext& c) {
  const int64_t width = c.in(1).sizes[0], rows = width ? c.in(0).numel() / width : 0;
  return DispatchFloat(c.out().dtype, [&]<class T>() -> Status {
    const T *in = c.in(0).as<T>(), *weight = c.in(1).as<T>();
    T* out = c.out().as<T>();
    for (int64_t r = 0; r < rows; ++r, in += width, out += width) {
      double squares = 0;
      for (int64_t i = 0; i < width; ++i) squares += static_cast<double>(Load(in[i])) * static_cast<double>(Load(in[i]));
      const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + c.attr(0).Number());
      for (int64_t i = 0; i < width; ++i) out[i] = Convert<T>(Load(in[i]) * scale * static_cast<double>(Load(weight[i])));
    }
    return OkStatus();
  });
}

}  // namespace

// input * rsqrt(mean(input^2, -1) + eps) * weight.
constinit const OpDef kOpRmsNorm = {"rms_norm",
                                    "rms_norm(Tensor input, Tensor weight, float eps) -> Tensor",
                                    "",
                                    "dovetail::rms_norm.out",
                                    kFused,
                                    Infer,
                                    Reference};

}  // namespace dovetail
