#include "ops/infer_util.h"
#include "ops/op_def.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType& input = c.operand(0);
  if (input.dtype != DType::kF32) return InvalidArgument("quantize_dynamic takes f32, not ", Name(input.dtype));
  const int64_t row_dims = c.attr(0).Int(1);
  if (row_dims < 1 || row_dims > static_cast<int64_t>(input.rank()))
    return InvalidArgument("quantize_dynamic of [", input.shape.ToString(), "] with rows of ", row_dims, " dims");
  const Shape rows(input.shape.dims().first(input.rank() - static_cast<size_t>(row_dims)));
  c.results[0] = TensorType(DType::kI8, input.shape, QuantParams::Dynamic());
  c.results[1] = TensorType(DType::kF32, rows);
  c.results[2] = TensorType(DType::kI32, rows);
  return OkStatus();
}

Status Reference(const KernelContext& c) {
  const int64_t rows = c.out(1).numel(), width = rows ? c.in(0).numel() / rows : 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float* x = c.in(0).as<float>() + r * width;
    float min = 0, max = 0;
    for (int64_t i = 0; i < width; ++i) {
      min = std::min(min, x[i]);
      max = std::max(max, x[i]);
    }
    const RowQuantization q = AsymmetricRow(min, max);
    c.out(1).as<float>()[r] = q.scale;
    c.out(2).as<int32_t>()[r] = q.zero_point;
    for (int64_t i = 0; i < width; ++i)
      c.out().as<int8_t>()[r * width + i] = static_cast<int8_t>(QuantizeElement(x[i], q.scale, q.zero_point, RangeOf(DType::kI8)));
  }
  return OkStatus();
}

}  // namespace

// i8 per row, a row being the elements of the last num_nonbatch_dims dims, with scale and zero point as AsymmetricRow gives them for the
// row's least and greatest element; scale and zero_point have the shape of the other dims.
constinit const OpDef kOpQuantizeDynamic = {"quantize_dynamic",
                                            "quantize_dynamic(Tensor input, int num_nonbatch_dims=1) -> (Tensor, Tensor scale, Tensor zero_point)",
                                            "",
                                            "dovetail::quantize_dynamic.out",
                                            kQuantized,
                                            Infer,
                                            Reference};

}  // namespace dovetail
