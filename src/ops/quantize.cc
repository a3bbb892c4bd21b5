#include "ops/infer_util.h"
#include "ops/op_def.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

enum { kScale, kZeroPoint, kDType };

Status Infer(const InferContext& c) {
  const TensorType& input = c.operand(0);
  const DType dtype = c.attr(kDType).Type(DType::kI8);
  const double scale = c.attr(kScale).Number();
  const Dim zero_point = c.attr(kZeroPoint).SymInt(0);
  if (input.dtype != DType::kF32) return InvalidArgument("quantize takes f32, not ", Name(input.dtype));
  if (!IsInteger(dtype) || ByteSize(dtype) > 4) return InvalidArgument("quantize to ", Name(dtype));
  if (!(static_cast<float>(scale) > 0) || !std::isfinite(static_cast<float>(scale))) return InvalidArgument("quantize with a scale of ", FormatDouble(scale));
  const IntegerRange range = RangeOf(dtype);
  if (!zero_point.is_constant() || zero_point.value() < range.min || zero_point.value() > range.max)
    return InvalidArgument("quantize to ", Name(dtype), " with a zero point of ", zero_point.ToString());
  c.results[0] = TensorType(dtype, input.shape, QuantParams::PerTensor(static_cast<float>(scale), static_cast<int32_t>(zero_point.value())));
  return OkStatus();
}

Status Reference(const KernelContext& c) {
  const float scale = static_cast<float>(c.attr(kScale).Number());
  const int32_t zero_point = static_cast<int32_t>(c.attr(kZeroPoint).Int());
  const IntegerRange range = RangeOf(c.out().dtype);
  for (int64_t i = 0; i < c.out().numel(); ++i) StoreQuantized(c.out(), i, QuantizeElement(c.in(0).as<float>()[i], scale, zero_point, range));
  return OkStatus();
}

}  // namespace

// round(input / scale) + zero_point, ties to even, within dtype's range.
constinit const OpDef kOpQuantize = {"quantize",
                                     "quantize(Tensor input, float scale, int zero_point, ScalarType out_dtype) -> Tensor",
                                     "",
                                     "dovetail::quantize.out",
                                     kQuantized,
                                     Infer,
                                     Reference};

}  // namespace dovetail
