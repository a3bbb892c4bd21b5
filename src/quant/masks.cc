#include "quant/masks.h"

#include <algorithm>
#include <cmath>

#include "quant/weights.h"

namespace dovetail {
namespace {

// Operators that keep the elements of their operands, or add masks to them.
bool Carries(OpId op) {
  switch (op) {
    case OpId::kAdd:
    case OpId::kWhere:
    case OpId::kView:
    case OpId::kPermute:
    case OpId::kExpand:
    case OpId::kSlice:
    case OpId::kIndex:
    case OpId::kIndexSelect:
    case OpId::kClone: return true;
    default: return false;
  }
}

bool HasFloats(const Constant& c) { return c.type.dtype == DType::kF32 && c.data_known && c.nbytes() > 0; }

// What a product or quotient multiplies by constants above 0; operand is kNone for other operators.
struct Scaled {
  ValueId operand = kNone;
  float least = 0;  // of the factors
};
Scaled ScaledOperand(const Module& module, const Graph& graph, const Node& n) {
  if (n.op != OpId::kMul && n.op != OpId::kDiv) return {};
  for (size_t i = n.op == OpId::kMul ? 0 : 1; i < 2; ++i) {
    const Node* constant = graph.producer_if(n.operands[i], OpId::kConst);
    if (!constant || !HasFloats(module.constants[constant->ref])) continue;
    float least = INFINITY;
    FloatRows rows(module.constants[constant->ref]);
    for (int64_t r = 0; r < rows.rows(); ++r)
      for (float v : rows.row(r)) least = std::min(least, !(v > 0) ? -1 : n.op == OpId::kMul ? v : 1 / v);
    if (least >= 0) return {n.operands[1 - i], least};
  }
  return {};
}

// Of very low numbers, and zeros beside them.
bool IsMask(const Constant& c) {
  if (!HasFloats(c)) return false;
  bool any = false;
  FloatRows rows(c);
  for (int64_t r = 0; r < rows.rows(); ++r)
    for (float v : rows.row(r)) {
      if (v != 0 && !(v < kMaskedFrom)) return false;
      any = any || v != 0;
    }
  return any;
}

// Marks what the marked values are carried from, or multiplied from by at least `least`.
void Spread(const Graph& graph, const std::vector<Scaled>& scaled, float least, std::vector<bool>& marked) {
  for (auto it = graph.order.rbegin(); it != graph.order.rend(); ++it) {
    const Node& n = graph.node(*it);
    if (n.results.empty() || !marked[n.results[0]]) continue;
    if (const Scaled& s = scaled[*it]; s.operand != kNone && s.least >= least) marked[s.operand] = true;
    if (!Carries(n.op)) continue;
    for (ValueId v : n.operands)
      if (v != kNone) marked[v] = true;
  }
}

}  // namespace

Masks FindMasks(const Module& module, const Graph& graph) {
  Masks m;
  m.scores = m.made = m.hidden = std::vector<bool>(graph.num_values());
  std::vector<Scaled> scaled(graph.num_nodes());
  for (NodeId id : graph.order) {
    const Node& n = graph.node(id);
    scaled[id] = ScaledOperand(module, graph, n);
    if (n.op == OpId::kSoftmax) m.scores[n.operands[0]] = true;
    const auto constant = [&](ValueId v) { return graph.producer_if(v, OpId::kConst); };
    if (n.results.empty() || (!Carries(n.op) && scaled[id].operand == kNone)) continue;
    m.made[n.results[0]] = std::any_of(n.operands.begin(), n.operands.end(), [&](ValueId v) {
      return v != kNone && (m.made[v] || (constant(v) && IsMask(module.constants[constant(v)->ref])));
    });
  }
  for (ValueId v : graph.outputs) m.hidden[v] = m.made[v];
  for (NodeId id : graph.order)
    if (const Node& n = graph.node(id); n.op == OpId::kAmax) m.hidden[n.operands[0]] = m.made[n.operands[0]];
  // A masked score that is made larger afterwards must not come near the others.
  Spread(graph, scaled, 1, m.scores);
  Spread(graph, scaled, 0, m.hidden);
  return m;
}

}  // namespace dovetail
