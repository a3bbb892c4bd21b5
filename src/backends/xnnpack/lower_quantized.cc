#include "backends/xnnpack/lowering.h"

namespace dovetail::xnnpack {
namespace {

// Of i8 with one scale for the tensor, which has its bias in i32 and gives i8; and of rows of i8 and of f32, both with a bias and a result in f32.
void QuantizedLinear(Lowering& l, const Node& n) {
  const Constant* w = GetConstant(l.module(), l.graph(), GetOperand(n, "weight"));
  const Constant* scale = GetConstant(l.module(), l.graph(), GetOperand(n, "weight_scale"));
  const ValueId bias = GetOperand(n, "bias"), input = GetOperand(n, "input");
  const Constant* b = l.F32Constant(bias);
  if (!w || !scale || (bias != kNone && !b)) return l.Fail("a quantized linear whose weight, scales and bias are not constants");
  if (l.type(input).rank() < 2) return l.Fail("a quantized linear of a vector");
  const bool nibbles = w->type.dtype == DType::kU8, rows = GetOperand(n, "input_scale") != kNone;
  if (nibbles && !rows) return l.Fail(StrCat("a linear of ", l.type(input).ToString(), " with 4-bit weights in blocks; it takes rows of i8 there"));
  const Dim columns = nibbles ? w->type.shape[1] * Dim(2) : w->type.shape[1];
  const Id x = l.Operand(input);
  const Id filter = l.QuantizedWeight(*w, *scale, Shape{w->type.shape[0], columns}, 0);
  switch (l.xnn_type(x).params) {
    case xn::XNNQuantParams::PerTensorQuant:
      return l.Bind(n.results[0], l.FullyConnected(x, filter, l.QuantizedBias(b, *scale, l.type(input).quant.scale), 0, l.TypeOf(n.results[0])));
    case xn::XNNQuantParams::PerTokenDynamicQuant: return l.Bind(n.results[0], l.FullyConnected(x, filter, b ? l.Weight(*b) : kNoId));
    default: break;
  }
  // XNNPACK's kernels of f32 times i8 (src/f32-qc8w-gemm of 2024-11) multiply the bias by the weight's scale too, so it stays outside.
  const Id y = l.FullyConnected(x, filter, kNoId);
  l.Bind(n.results[0], b ? l.Add(y, l.Operand(bias)) : y);
}

// Between f32 and i8, in the order of dims that the value has.
void Convert(Lowering& l, const Node& n) {
  const Order order = l.OnlyChannelsLast(n.operands[0]) ? Order::kChannelsLast : Order::kPlain;
  const XnnType type = l.TypeOf(n.results[0]);
  l.Bind(n.results[0], l.Convert(l.Operand(n.operands[0], order), type), order);
}

void Dequantize(Lowering& l, const Node& n) {
  if (!l.type(n.operands[0]).per_tensor()) return l.Fail("integers with a scale that is not their type's");
  Convert(l, n);
}

void QuantizeDynamic(Lowering& l, const Node& n) {
  const int64_t row_dims = GetAttr(n, "num_nonbatch_dims").Int(1);
  const size_t rank = l.type(n.operands[0]).rank();
  if (rank < 2) return l.Fail("a vector quantized at run time");
  const XnnType type = l.TypeOf(n.results[0]);
  if (row_dims == 1) return l.Bind(n.results[0], l.Convert(l.Operand(n.operands[0]), type));
  // The items of a convolution's batch. It takes them with channels last and two spatial dims.
  if (row_dims != static_cast<int64_t>(rank) - 1 || rank > 4) return l.Fail(StrCat("rows of ", row_dims, " dims of a tensor of ", rank));
  Id x = l.Operand(n.operands[0], Order::kChannelsLast);
  if (rank == 3) x = l.Reshape(x, Shape{l.shape(x)[0], Dim(1), l.shape(x)[1], l.shape(x)[2]});
  l.Bind(n.results[0], l.Convert(x, type), Order::kChannelsLast);
}

}  // namespace

LowerFn FindQuantized(OpId op) {
  switch (op) {
    case OpId::kQuantizedLinear: return QuantizedLinear;
    case OpId::kQuantize: return Convert;
    case OpId::kDequantize: return Dequantize;
    case OpId::kQuantizeDynamic: return QuantizeDynamic;
    default: return nullptr;
  }
}

}  // namespace dovetail::xnnpack
