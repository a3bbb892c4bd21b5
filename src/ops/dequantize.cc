#include "ops/infer_util.h"
#include "ops/op_def.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

enum { kScale, kZeroPoint };

Status Infer(const InferContext& c) {
  const TensorType& input = c.operand(0);
  if (!IsInteger(input.dtype) || ByteSize(input.dtype) > 4) return InvalidArgument("dequantize takes integers, not ", Name(input.dtype));
  const float scale = static_cast<float>(c.attr(kScale).Number());
  // At run time types are without quantization: the numbers are the attributes alone.
  if (input.per_tensor() && (input.quant.scale != scale || Dim(input.quant.zero_point) != c.attr(kZeroPoint).SymInt()))
    return InvalidArgument("dequantize with a scale of ", FormatDouble(c.attr(kScale).Number()), " and a zero point of ", c.attr(kZeroPoint).ToString(), " of ", input.ToString());
  return SetResult(c, 0, DType::kF32, input.shape);
}

Status Reference(const KernelContext& c) {
  const float scale = static_cast<float>(c.attr(kScale).Number());
  const int32_t zero_point = static_cast<int32_t>(c.attr(kZeroPoint).Int());
  const Reader<int64_t> in(c.in(0));
  for (int64_t i = 0; i < c.out().numel(); ++i) c.out().as<float>()[i] = DequantizeElement(static_cast<int32_t>(in[i]), scale, zero_point);
  return OkStatus();
}

}  // namespace

// (input - zero_point) * scale.
constinit const OpDef kOpDequantize = {"dequantize",
                                       "dequantize(Tensor input, float scale, int zero_point) -> Tensor",
                                       "",
                                       "dovetail::dequantize.out",
                                       kQuantized,
                                       Infer,
                                       Reference};

}  // namespace dovetail
