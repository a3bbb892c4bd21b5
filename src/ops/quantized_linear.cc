#include "ops/infer_util.h"
#include "ops/op_def.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

enum { kInput, kInputScale, kInputZeroPoint, kWeight, kWeightScale, kBias };

Status Infer(const InferContext& c) {
  const TensorType &input = c.operand(kInput), &weight = c.operand(kWeight), &scale = c.operand(kWeightScale);
  DT_RETURN_IF_ERROR(RequireRank(input, 1, kMaxRank, "quantized_linear's input"));
  DT_ASSIGN_OR_RETURN(const Shape dims, QuantizedMatrixShape(weight, scale));
  if (input.shape.back() != dims[1])
    return InvalidArgument("quantized_linear of [", input.shape.ToString(), "] with a weight [", dims.ToString(), "]: the last dims differ");
  const bool dynamic = input.dtype == DType::kI8;
  if (!dynamic && input.dtype != DType::kF32) return InvalidArgument("quantized_linear of ", input.ToString(), "; it takes f32 or quantize_dynamic's i8");
  Shape shape = input.shape;
  shape.erase(shape.rank() - 1);
  if (dynamic != c.has(kInputScale) || dynamic != c.has(kInputZeroPoint) ||
      (dynamic && (!(c.operand(kInputScale).shape == shape) || !(c.operand(kInputZeroPoint).shape == shape) || c.operand(kInputScale).dtype != DType::kF32 ||
                   c.operand(kInputZeroPoint).dtype != DType::kI32)))
    return InvalidArgument("quantized_linear of ", input.ToString(), " needs the scale and zero point that quantize_dynamic gives, and of f32 none");
  if (c.has(kBias) && (c.operand(kBias).dtype != DType::kF32 || !(c.operand(kBias).shape == Shape{dims[0]})))
    return InvalidArgument("quantized_linear with ", dims[0].ToString(), " results and a bias ", c.operand(kBias).ToString());
  shape.push_back(dims[0]);
  return SetResult(c, 0, DType::kF32, shape);
}

// One element. Of dynamic rows the sums of a block are exact integers: K * 255 * 127 of any K below 66000 fits into 31 bits.
double Element(const KernelContext& c, const QuantizedMatrix& w, int64_t row, int64_t n) {
  const int64_t columns = w.columns(), block = w.block();
  double sum = 0;
  for (int64_t begin = 0; begin < columns; begin += block) {
    if (c.has(kInputScale)) {
      const int8_t* x = c.in(kInput).as<int8_t>() + row * columns;
      const int32_t zero_point = c.in(kInputZeroPoint).as<int32_t>()[row];
      int64_t dot = 0;
      for (int64_t k = begin; k < begin + block; ++k) dot += (int64_t{x[k]} - zero_point) * w.at(n, k);
      sum += static_cast<double>(dot) * static_cast<double>(w.scale_of(n, begin)) * static_cast<double>(c.in(kInputScale).as<float>()[row]);
    } else {
      const float* x = c.in(kInput).as<float>() + row * columns;
      double dot = 0;
      for (int64_t k = begin; k < begin + block; ++k) dot += static_cast<double>(x[k]) * w.at(n, k);
      sum += dot * static_cast<double>(w.scale_of(n, begin));
    }
  }
  return c.has(kBias) ? sum + static_cast<double>(c.in(kBias).as<float>()[n]) : sum;
}

Status Reference(const KernelContext& c) {
  const QuantizedMatrix w{c.in(kWeight), c.in(kWeightScale)};
  const int64_t out = w.rows(), rows = out ? c.out().numel() / out : 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t n = 0; n < out; ++n) c.out().as<float>()[r * out + n] = static_cast<float>(Element(c, w, r, n));
  return OkStatus();
}

}  // namespace

// input @ weight^T + bias with the weight's integers times their scales. The weight is i8[N,K] with scales f32[N] (per_channel) or u8[N,K/2]
// (two 4-bit integers to a byte) with scales bf16[N,K/block] (per_block). The input is f32, or quantize_dynamic's i8 with its scale and zero point,
// whose products are summed exactly within a block.
constinit const OpDef kOpQuantizedLinear = {
    "quantized_linear",
    "quantized_linear(Tensor input, Tensor? input_scale, Tensor? input_zero_point, Tensor weight, Tensor weight_scale, Tensor? bias) -> Tensor",
    "",
    "dovetail::quantized_linear.out",
    kFused,
    Infer,
    Reference};

}  // namespace dovetail
