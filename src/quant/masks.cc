#include "quant/masks.h"

#include <algorithm>

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

// Of very low numbers, and zeros beside them.
bool IsMask(const Constant& c) {
  if (c.type.dtype != DType::kF32 || !c.data_known || c.nbytes() == 0) return false;
  bool any = false;
  FloatRows rows(c);
  for (int64_t r = 0; r < rows.rows(); ++r)
    for (float v : rows.row(r)) {
      if (v != 0 && !(v < kMaskedFrom)) return false;
      any = any || v != 0;
    }
  return any;
}

// Marks what the marked values are carried from.
void Spread(const Graph& graph, std::vector<bool>& marked) {
  for (auto it = graph.order.rbegin(); it != graph.order.rend(); ++it) {
    const Node& n = graph.node(*it);
    if (n.results.empty() || !marked[n.results[0]] || !Carries(n.op)) continue;
    for (ValueId v : n.operands)
      if (v != kNone) marked[v] = true;
  }
}

}  // namespace

Masks FindMasks(const Module& module, const Graph& graph) {
  Masks m;
  m.scores = m.made = m.hidden = std::vector<bool>(graph.num_values());
  for (NodeId id : graph.order) {
    const Node& n = graph.node(id);
    if (n.op == OpId::kSoftmax) m.scores[n.operands[0]] = true;
    const auto constant = [&](ValueId v) { return graph.producer_if(v, OpId::kConst); };
    // Of products those by a constant.
    const bool scaled = n.op == OpId::kMul && std::any_of(n.operands.begin(), n.operands.end(), constant);
    if (n.results.empty() || (!Carries(n.op) && !scaled)) continue;
    m.made[n.results[0]] = std::any_of(n.operands.begin(), n.operands.end(), [&](ValueId v) {
      return v != kNone && (m.made[v] || (constant(v) && IsMask(module.constants[constant(v)->ref])));
    });
  }
  for (ValueId v : graph.outputs) m.hidden[v] = m.made[v];
  for (NodeId id : graph.order)
    if (const Node& n = graph.node(id); n.op == OpId::kAmax) m.hidden[n.operands[0]] = m.made[n.operands[0]];
  Spread(graph, m.scores);
  Spread(graph, m.hidden);
  return m;
}

}  // namespace dovetail
