#include "passes/match.h"

#include <cstring>
#include <vector>

namespace dovetail {

std::optional<double> SplatValue(const Module& module, const Graph& graph, ValueId v) {
  if (v == kNone) return std::nullopt;
  if (auto scalar = GetScalar(module, graph, v)) return scalar;
  const Node* n = graph.producer(v);
  if (!n) return std::nullopt;
  if (n->op == OpId::kFull) return GetAttr(*n, "fill_value").Number();
  if (n->op == OpId::kExpand || n->op == OpId::kView || n->op == OpId::kToDtype) return SplatValue(module, graph, n->operands[0]);
  return std::nullopt;
}

std::pair<ValueId, ValueId> MatchBinary(const Graph& graph, ValueId v, OpId op) {
  const Node* n = graph.producer_if(v, op);
  if (!n) return {kNone, kNone};
  if ((op == OpId::kAdd || op == OpId::kSub) && GetAttr(*n, "alpha").Number(1) != 1) return {kNone, kNone};
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
  if (!(GetOp(op).traits & kCommutative)) return std::nullopt;
  if (auto c = SplatValue(module, graph, a); c && graph.type(b).shape == graph.type(v).shape) return ScalarOperand{b, *c};
  return std::nullopt;
}

bool SwapsLastTwo(const Node& n) {
  const std::vector<Dim>& dims = GetAttr(n, "dims").Dims();
  const int64_t rank = static_cast<int64_t>(dims.size());
  if (rank < 2) return false;
  for (int64_t i = 0; i < rank; ++i) {
    int64_t d = dims[static_cast<size_t>(i)].value();
    if (d < 0) d += rank;
    const int64_t expected = i == rank - 2 ? rank - 1 : i == rank - 1 ? rank - 2 : i;
    if (d != expected) return false;
  }
  return true;
}

ValueId SkipViews(const Graph& graph, ValueId v) {
  while (const Node* n = graph.producer_if(v, OpId::kView)) {
    const Shape& from = graph.type(n->operands[0]).shape;
    const Shape& to = graph.type(v).shape;
    if (from.empty() || to.empty() || from.back() != to.back()) break;
    v = n->operands[0];
  }
  return v;
}

}  // namespace dovetail
