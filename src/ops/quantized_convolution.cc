#include <vector>

#include "ops/infer_util.h"
#include "ops/op_def.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

enum { kInput, kInputScale, kInputZeroPoint, kWeight, kWeightScale, kBias };
enum { kStride, kPadding, kDilation, kTransposed, kOutputPadding, kGroups };

Status Infer(const InferContext& c) {
  const TensorType &input = c.operand(kInput), &weight = c.operand(kWeight), &scale = c.operand(kWeightScale);
  const bool dynamic = input.dtype == DType::kI8;
  if (!dynamic && input.dtype != DType::kF32) return InvalidArgument("quantized_convolution of ", input.ToString());
  if (weight.dtype != DType::kI8) return InvalidArgument("quantized_convolution with a weight ", weight.ToString());
  const TensorType operands[] = {TensorType(DType::kF32, input.shape), TensorType(DType::kF32, weight.shape), c.has(kBias) ? c.operand(kBias) : TensorType()};
  DT_RETURN_IF_ERROR(kOpConvolution.infer({operands, c.attrs, c.results, {}}));
  if (scale.dtype != DType::kF32 || !(scale.shape == Shape{c.results[0].shape[1]}))
    return InvalidArgument("quantized_convolution with ", c.results[0].shape[1].ToString(), " output channels and scales ", scale.ToString());
  const Shape rows{input.shape[0]};
  if (dynamic != c.has(kInputScale) || dynamic != c.has(kInputZeroPoint) ||
      (dynamic && (c.operand(kInputScale) != TensorType(DType::kF32, rows) || c.operand(kInputZeroPoint) != TensorType(DType::kI32, rows))))
    return InvalidArgument("quantized_convolution of ", input.ToString(), " needs the scale and zero point that quantize_dynamic gives for each item of the batch, and of f32 none");
  return OkStatus();
}

struct Doubles {
  std::vector<double> data;
  TensorView view;
  explicit Doubles(const TensorView& like) : data(static_cast<size_t>(like.numel())), view(DType::kF64, like.shape(), data.data()) {}
};

// Integers are exact in double, so the sums of dynamic inputs are.
Status Reference(const KernelContext& c) {
  Doubles input(c.in(kInput)), weight(c.in(kWeight)), out(c.out());
  const int64_t item = c.in(kInput).sizes[0] ? c.in(kInput).numel() / c.in(kInput).sizes[0] : 0;
  for (int64_t i = 0; i < c.in(kInput).numel(); ++i)
    input.data[static_cast<size_t>(i)] = c.has(kInputScale) ? static_cast<double>(int64_t{c.in(kInput).as<int8_t>()[i]} - c.in(kInputZeroPoint).as<int32_t>()[i / item])
                                                            : static_cast<double>(c.in(kInput).as<float>()[i]);
  for (int64_t i = 0; i < c.in(kWeight).numel(); ++i) weight.data[static_cast<size_t>(i)] = c.in(kWeight).as<int8_t>()[i];
  const TensorView operands[] = {input.view, weight.view, TensorView()};
  DT_RETURN_IF_ERROR(kOpConvolution.reference({operands, c.attrs, std::span(&out.view, 1), nullptr, {}}));
  const int64_t channels = c.out().sizes[1], area = c.out().stride(1);
  for (int64_t i = 0; i < c.out().numel(); ++i) {
    const int64_t channel = i / area % channels, n = i / area / channels;
    double v = out.data[static_cast<size_t>(i)] * static_cast<double>(c.in(kWeightScale).as<float>()[channel]);
    if (c.has(kInputScale)) v *= static_cast<double>(c.in(kInputScale).as<float>()[n]);
    if (c.has(kBias)) v += static_cast<double>(c.in(kBias).as<float>()[channel]);
    c.out().as<float>()[i] = static_cast<float>(v);
  }
  return OkStatus();
}

}  // namespace

// convolution with the weight's integers, i8 as convolution has its weight, times weight_scale f32[output channels]. The input is f32, or
// quantize_dynamic's i8 with one scale and zero point for each item of the batch.
constinit const OpDef kOpQuantizedConvolution = {
    "quantized_convolution",
    "quantized_convolution(Tensor input, Tensor? input_scale, Tensor? input_zero_point, Tensor weight, Tensor weight_scale, Tensor? bias, SymInt[] stride, "
    "SymInt[] padding, SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups) -> Tensor",
    "",
    "dovetail::quantized_convolution.out",
    kFused,
    Infer,
    Reference};

}  // namespace dovetail
