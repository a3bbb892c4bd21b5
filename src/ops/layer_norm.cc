#include <cmath>

#include "ops/dispatch.h"
#include "ops/infer_util.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {

enum { kInput, kWeight, kBias };

Status Infer(const InferContext& c) {
  const TensorType& input = c.operand(kInput);
  DT_RETURN_IF_ERROR(RequireRank(input, 1, kMaxRank, "layer_norm"));
  DT_RETURN_IF_ERROR(RequireFloat(input, "layer_norm"));
  for (size_t i : {kWeight, kBias})
    if (const TensorType& t = c.operand(i); t.dtype != input.dtype || !(t.shape == Shape{input.shape.back()}))
      return InvalidArgument("layer_norm of ", input.ToString(), " with a ", i == kWeight ? "weight " : "bias ", t.ToString(), "; it must be ",
                             Name(input.dtype), "[", input.shape.back().ToString(), "]");
  return SetResult(c, 0, input.dtype, input.shape);
}

Status Reference(const KernelContext& c) {
  const int64_t width = c.in(kWeight).sizes[0], rows = width ? c.in(kInput).numel() / width : 0;
  return DispatchFloat(c.out().dtype, [&]<class T>() -> Status {
    const T *in = c.in(kInput).as<T>(), *weight = c.in(kWeight).as<T>(), *bias = c.in(kBias).as<T>();
    T* out = c.out().as<T>();
    for (int64_t r = 0; r < rows; ++r, in += width, out += width) {
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < width; ++i) sum += static_cast<double>(Load(in[i]));
      const double mean = sum / static_cast<double>(width);
      for (int64_t i = 0; i < width; ++i) squares += (static_cast<double>(Load(in[i])) - mean) * (static_cast<double>(Load(in[i])) - mean);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + c.attr(0).Number());
      for (int64_t i = 0; i < width; ++i)
        out[i] = Convert<T>((static_cast<double>(Load(in[i])) - mean) * scale * static_cast<double>(Load(weight[i])) + static_cast<double>(Load(bias[i])));
    }
    return OkStatus();
  });
}

}  // namespace

// (input - mean) * rsqrt(variance + eps) * weight + bias, mean and variance over the last dim.
constinit const OpDef kOpLayerNorm = {"layer_norm",
                                      "layer_norm(Tensor input, Tensor weight, Tensor bias, float eps) -> Tensor",
                                      "",
                                      "dovetail::layer_norm.out",
                                      kFused,
                                      Infer,
                                      Reference};

}  // namespace dovetail
