#include "passes/match.h"

#include <cmath>
#include <cstring>
#include <vector>

namespace dovetail {
namespace {

constexpr size_t kMaxSplatBytes = size_t{1} << 16;  // what fold_constants writes out

// What a tensor of `dtype` holds when `v` is stored in it; nullopt for what is not representable and dtypes no pattern needs.
std::optional<double> Stored(double v, DType dtype) {
  switch (dtype) {
    case DType::kF64: return v;
    case DType::kF32: return static_cast<float>(v);
    case DType::kF16: return HalfToFloat(FloatToHalf(static_cast<float>(v)));
    case DType::kBF16: return BFloat16ToFloat(FloatToBFloat16(static_cast<float>(v)));
    case DType::kBool: return v != 0;
    case DType::kI64:
    case DType::kI32: return std::abs(v) < 0x1p31 ? std::optional(std::trunc(v)) : std::nullopt;
    default: return std::nullopt;
  }
}

// The element that all elements of a small constant are.
std::optional<double> SplatOfConstant(const Constant& c) {
  const int64_t n = c.type.shape.numel().value();
  if (!c.data_known || n < 1 || c.nbytes() > kMaxSplatBytes) return std::nullopt;
  std::vector<std::byte> bytes(c.nbytes());
  c.CopyTo(bytes.data());
  const size_t item = ByteSize(c.type.dtype);
  for (size_t i = item; i < bytes.size(); ++i)
    if (bytes[i] != bytes[i - item]) return std::nullopt;
  Constant first = c;
  first.type = TensorType(DType::kF64, {});
  first.strides.clear();
  double v = 0;
  first.CopyTo(reinterpret_cast<std::byte*>(&v));
  return Stored(v, c.type.dtype);
}

}  // namespace

bool IsNumber(const Attr& a, double v) { return a.Number(std::nan("")) == v; }

std::optional<double> SplatValue(const Module& module, const Graph& graph, ValueId v) {
  const Node* n = v == kNone ? nullptr : graph.producer(v);
  if (!n) return std::nullopt;
  switch (n->op) {
    case OpId::kConst: return SplatOfConstant(module.constants[n->ref]);
    case OpId::kFull: {
      const Attr& fill = GetAttr(*n, "fill_value");
      if (fill.is<Dim>() && !fill.get<Dim>()->is_constant()) return std::nullopt;
      return Stored(fill.Number(), graph.type(v).dtype);
    }
    case OpId::kExpand:
    case OpId::kView: return SplatValue(module, graph, n->operands[0]);
    case OpId::kToDtype: {
      const auto from = SplatValue(module, graph, n->operands[0]);
      return from ? Stored(*from, graph.type(v).dtype) : std::nullopt;
    }
    default: return std::nullopt;
  }
}

std::pair<ValueId, ValueId> MatchBinary(const Graph& graph, ValueId v, OpId op) {
  const Node* n = graph.producer_if(v, op);
  if (!n) return {kNone, kNone};
  if ((op == OpId::kAdd || op == OpId::kSub) && !IsNumber(GetAttr(*n, "alpha"), 1)) return {kNone, kNone};
  return {n->operands[0], n->operands[1]};
}

ValueId MatchUnary(const Graph& graph, ValueId v, OpId op) {
  const Node* n = graph.producer_if(v, op);
  return n ? n->operands[0] : kNone;
}

std::optional<ScalarOperand> MatchScalar(const Module& module, const Graph& graph, ValueId v, OpId op) {
  const auto [a, b] = MatchBinary(graph, v, op);
  if (a == kNone) return std::nullopt;
  if (auto c = SplatValue(module, graph, b); c && graph.type(a).shape == graph.type(v).shape) return ScalarOperand{a, *c};
  // An add that MatchBinary takes has alpha 1.
  if (op != OpId::kAdd && !(GetOp(op).traits & kCommutative)) return std::nullopt;
  if (auto c = SplatValue(module, graph, a); c && graph.type(b).shape == graph.type(v).shape) return ScalarOperand{b, *c};
  return std::nullopt;
}

}  // namespace dovetail
