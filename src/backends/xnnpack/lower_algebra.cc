#include <algorithm>
#include <cmath>

#include "backends/xnnpack/lowering.h"
#include "ops/infer_util.h"

namespace dovetail::xnnpack {
namespace {

void Linear(Lowering& l, const Node& n) {
  const ValueId weight = GetOperand(n, "weight"), bias = GetOperand(n, "bias");
  const Id x = l.Operand(GetOperand(n, "input"));
  if (l.type(weight).rank() != 2) return l.Fail("a linear whose weight is not a matrix");
  const Constant* w = l.F32Constant(weight);
  const Constant* b = l.F32Constant(bias);
  const Id filter = w ? l.Weight(*w) : l.Operand(weight);
  // XNNPACK wants a bias that is known while it packs the weight.
  const bool packed_bias = b && w;
  Id y = l.FullyConnected(x, filter, packed_bias ? l.Weight(*b) : kNoId);
  if (bias != kNone && !packed_bias) y = l.Add(y, l.Operand(bias));
  l.Bind(n.results[0], y);
}

void MatMul(Lowering& l, const Node& n) {
  const Id a = l.Operand(n.operands[0]);
  // A constant matrix is a linear's weight, packed once.
  if (const Constant* w = l.F32Constant(n.operands[1]); w && w->type.rank() == 2) {
    const Id y = l.FullyConnected(a, l.Weight(*w), kNoId, kTransposeWeights);
    return l.Bind(n.results[0], y);
  }
  l.Bind(n.results[0], l.MatMul(a, l.Operand(n.operands[1]), false));
}

// Weighted sum over the last dim, which stays with size 1. XNNPACK's format has no reduction, so it is a linear of one row.
Id SumLast(Lowering& l, Id x, double weight) {
  const Dim width = l.shape(x).back();
  if (!width.is_constant() || width.value() < 1) {
    l.Fail(StrCat("a reduction over ", width.ToString(), " elements; the size must be a constant"));
    return l.Slice(x, l.shape(x).rank() - 1, 0, 1);
  }
  const std::string key = StrCat("dovetail.row.", FormatDouble(weight), ".", width.value());
  const Id row = l.Weight(key, Shape{Dim(1), width},
                          [&] { return std::vector<float>(static_cast<size_t>(width.value()), static_cast<float>(weight)); });
  return l.FullyConnected(x, row, kNoId);
}

void Reduce(Lowering& l, const Node& n) {
  const bool mean = n.op == OpId::kMean;
  const TensorType& type = l.type(n.operands[0]);
  const size_t rank = type.rank();
  std::vector<bool> reduced(rank, false);
  size_t count = 0;
  for (Dim d : DimsOf(GetAttr(n, "dim"))) {
    const Result<size_t> axis = d.is_constant() ? NormalizeAxis(d.value(), rank) : Result<size_t>(InvalidArgument("symbolic"));
    if (!axis.ok() || rank == 0 || reduced[*axis]) return l.Fail("a reduction over a bad dimension");
    reduced[*axis] = true;
    ++count;
  }
  const TensorType& result = l.type(n.results[0]);
  const bool keep = GetAttr(n, "keepdim").Bool();
  if (count == 1 && reduced[rank - 1]) {
    const Dim width = type.shape.back();
    const Id y =
        SumLast(l, l.Operand(n.operands[0]), mean ? 1.0 / static_cast<double>(std::max<int64_t>(1, width.constant().value_or(1))) : 1);
    return l.Bind(n.results[0], l.Reshape(y, result.shape));
  }
  if (mean && rank == 4 && count == 2 && reduced[2] && reduced[3]) {
    const Id x = l.Operand(n.operands[0], Order::kChannelsLast);
    const Shape& s = l.shape(x);
    XnnNode node(Kind::XNNGlobalAvgPooling2d, {x});
    node.flags = kKeepDims;
    const Id y = l.Emit(std::move(node), Shape{s[0], Dim(1), Dim(1), s[3]}, l.TypeOf(n.results[0]));
    if (keep) return l.Bind(n.results[0], y, Order::kChannelsLast);
    return l.Bind(n.results[0], l.Reshape(y, result.shape));
  }
  l.Fail(StrCat("a ", mean ? "mean" : "sum", " over other dims than the last, or the last two of four"));
}

void RmsNorm(Lowering& l, const Node& n) {
  const Id x = l.Operand(GetOperand(n, "input"));
  const Dim width = l.shape(x).back();
  const Id mean = SumLast(l, l.Unary(Kind::XNNSquare, x), 1.0 / static_cast<double>(std::max<int64_t>(1, width.constant().value_or(1))));
  const Id scale = l.Unary(Kind::XNNReciprocalSquareRoot, l.Add(mean, l.Number(GetAttr(n, "eps").Number())));
  l.Bind(n.results[0], l.Mul(l.Mul(x, scale), l.Operand(GetOperand(n, "weight"))));
}

void Softmax(Lowering& l, const Node& n) {
  Id x = l.Operand(n.operands[0]);
  const size_t rank = l.shape(x).rank();
  const Result<size_t> axis = NormalizeAxis(GetAttr(n, "dim").Int(), rank);
  if (!axis.ok() || GetAttr(n, "half_to_float").Bool()) return l.Fail("a softmax along a bad dimension, or of half precision");
  std::vector<size_t> perm(rank);  // its own inverse
  for (size_t i = 0; i < rank; ++i) perm[i] = i;
  std::swap(perm[*axis], perm[rank - 1]);
  l.Bind(n.results[0], l.Transpose(l.Softmax(l.Transpose(x, perm)), perm));
}

}  // namespace

LowerFn FindAlgebra(OpId op) {
  switch (op) {
    case OpId::kLinear: return Linear;
    case OpId::kMatmul:
    case OpId::kBmm: return MatMul;
    case OpId::kMean:
    case OpId::kSum: return Reduce;
    case OpId::kRmsNorm: return RmsNorm;
    case OpId::kSoftmax: return Softmax;
    default: return nullptr;
  }
}

}  // namespace dovetail::xnnpack
