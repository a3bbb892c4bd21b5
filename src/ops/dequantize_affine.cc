#include "ops/affine.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType& input = c.operand(0);
  if (!IsInteger(input.dtype) || ByteSize(input.dtype) > 4 || input.quant != QuantParams())
    return InvalidArgument("dequantize_affine takes plain integers, not ", input.ToString());
  DT_ASSIGN_OR_RETURN(const Shape grid, BlockGrid(input.shape, c.attr(0), "dequantize_affine"));
  DT_RETURN_IF_ERROR(CheckBlockParameters(c, grid, "dequantize_affine"));
  return SetResult(c, 0, DType::kF32, input.shape);
}

Status Reference(const KernelContext& c) {
  const BlockIndex block_of(c.in(0), c.attr(0));
  const Reader<int64_t> in(c.in(0));
  const Reader<float> scale(c.in(1));
  for (int64_t i = 0; i < c.out().numel(); ++i) {
    const int64_t block = block_of(i);
    const int64_t zero_point = c.has(2) ? ReadElement<int64_t>(c.in(2).dtype, c.in(2).data, block) : 0;
    c.out().as<float>()[i] = static_cast<float>(in[i] - zero_point) * scale[block];
  }
  return OkStatus();
}

}  // namespace

// (input - zero_point) * scale, in f32, with the scale and zero point of the element's block; no zero points are zeros.
constinit const OpDef kOpDequantizeAffine = {"dequantize_affine",
                                             "dequantize_affine(Tensor input, Tensor scale, Tensor? zero_point, SymInt[] block_size) -> Tensor",
                                             "",
                                             "dovetail::dequantize_affine.out",
                                             kQuantized,
                                             Infer,
                                             Reference};

}  // namespace dovetail
