#include "ops/affine.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

enum { kBlockSize, kMin, kMax, kDType };

Status Infer(const InferContext& c) {
  const TensorType& input = c.operand(0);
  const DType dtype = c.attr(kDType).Type(DType::kI8);
  if (input.dtype != DType::kF32) return InvalidArgument("quantize_affine takes f32, not ", Name(input.dtype));
  if (!IsInteger(dtype) || ByteSize(dtype) > 4) return InvalidArgument("quantize_affine to ", Name(dtype));
  const IntegerRange range = RangeOf(dtype);
  const int64_t min = c.attr(kMin).Int(), max = c.attr(kMax).Int();
  if (min >= max || min < range.min || max > range.max) return InvalidArgument("quantize_affine to ", Name(dtype), " from ", min, " to ", max);
  DT_ASSIGN_OR_RETURN(const Shape grid, BlockGrid(input.shape, c.attr(kBlockSize), "quantize_affine"));
  DT_RETURN_IF_ERROR(CheckBlockParameters(c, grid, "quantize_affine"));
  return SetResult(c, 0, dtype, input.shape);
}

Status Reference(const KernelContext& c) {
  const BlockIndex block_of(c.in(0), c.attr(kBlockSize));
  const Reader<float> scale(c.in(1));
  const double min = static_cast<double>(c.attr(kMin).Int()), max = static_cast<double>(c.attr(kMax).Int());
  for (int64_t i = 0; i < c.out().numel(); ++i) {
    const int64_t block = block_of(i);
    const double zero_point = c.has(2) ? static_cast<double>(ReadElement<int64_t>(c.in(2).dtype, c.in(2).data, block)) : 0;
    const double q = static_cast<double>(std::nearbyint(c.in(0).as<float>()[i] * (1 / scale[block]))) + zero_point;
    StoreQuantized(c.out(), i, static_cast<int32_t>(std::isnan(q) ? std::clamp(zero_point, min, max) : std::clamp(q, min, max)));
  }
  return OkStatus();
}

}  // namespace

// round(input * (1 / scale)) + zero_point, ties to even, clamped to quant_min..quant_max, with the scale and zero point of the element's
// block. The integers are plain: their scales are values, not parts of their type.
constinit const OpDef kOpQuantizeAffine = {
    "quantize_affine",
    "quantize_affine(Tensor input, Tensor scale, Tensor? zero_point, SymInt[] block_size, int quant_min, int quant_max, ScalarType out_dtype) -> Tensor",
    "",
    "dovetail::quantize_affine.out",
    kQuantized,
    Infer,
    Reference};

}  // namespace dovetail
