#include "ops/infer_util.h"
#include "ops/op_def.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType &input = c.operand(0), &scale = c.operand(1);
  DT_RETURN_IF_ERROR(RequireRank(input, 1, kMaxRank, "dequantize_rows"));
  Shape rows = input.shape;
  rows[rows.rank() - 1] = 1;
  if (input.dtype != DType::kI8 || scale.dtype != DType::kF32 || !(scale.shape == rows))
    return InvalidArgument("dequantize_rows of ", input.ToString(), " with scales ", scale.ToString());
  return SetResult(c, 0, DType::kF32, input.shape);
}

Status Reference(const KernelContext& c) {
  const int64_t rows = c.in(1).numel(), width = rows ? c.in(0).numel() / rows : 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = r * width; i < (r + 1) * width; ++i) c.out().as<float>()[i] = static_cast<float>(c.in(0).as<int8_t>()[i]) * c.in(1).as<float>()[r];
  return OkStatus();
}

}  // namespace

// The inverse of quantize_rows: input * scale.
constinit const OpDef kOpDequantizeRows = {"dequantize_rows",
                                           "dequantize_rows(Tensor input, Tensor scale) -> Tensor",
                                           "",
                                           "dovetail::dequantize_rows.out",
                                           kQuantized,
                                           Infer,
                                           Reference};

}  // namespace dovetail
