#include "ops/infer_util.h"
#include "ops/op_def.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType& input = c.operand(0);
  if (input.dtype != DType::kF32) return InvalidArgument("quantize_rows takes f32, not ", Name(input.dtype));
  DT_RETURN_IF_ERROR(RequireRank(input, 1, kMaxRank, "quantize_rows"));
  Shape rows = input.shape;
  rows[rows.rank() - 1] = 1;
  c.results[0] = TensorType(DType::kI8, input.shape);
  c.results[1] = TensorType(DType::kF32, rows);
  return OkStatus();
}

Status Reference(const KernelContext& c) {
  const int64_t rows = c.out(1).numel(), width = rows ? c.in(0).numel() / rows : 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = c.in(0).as<float>() + r * width;
    float most = 0;
    for (int64_t i = 0; i < width; ++i) most = std::max(most, std::abs(x[i]));
    const float scale = SymmetricRowScale(most);
    c.out(1).as<float>()[r] = scale;
    for (int64_t i = 0; i < width; ++i)
      c.out().as<int8_t>()[r * width + i] = static_cast<int8_t>(scale > 0 ? QuantizeElement(x[i], scale, 0, {-127, 127}) : 0);
  }
  return OkStatus();
}

}  // namespace

// i8 per row of the last dim: scale = max|x| / 127 in 16 significant bits, of the shape with a last dim of 1; a row of zeros has the scale 0. How an int8
// state is stored. Of dequantize_rows(q, scale) it gives q and scale again.
constinit const OpDef kOpQuantizeRows = {"quantize_rows",
                                         "quantize_rows(Tensor input) -> (Tensor, Tensor scale)",
                                         "",
                                         "dovetail::quantize_rows.out",
                                         kQuantized,
                                         Infer,
                                         Reference};

}  // namespace dovetail
