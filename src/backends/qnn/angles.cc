#include "backends/qnn/angles.h"

#include <algorithm>

#include "ops/advanced_index.h"

namespace dovetail::qnn {
namespace {

bool IsRound(OpId op) { return op == OpId::kSin || op == OpId::kCos; }

// What positions go through before they are angles.
bool Carries(OpId op) {
  switch (op) {
    case OpId::kToDtype:
    case OpId::kMul:
    case OpId::kDiv:
    case OpId::kAdd:
    case OpId::kSub:
    case OpId::kMatmul:
    case OpId::kBmm:
    case OpId::kCat:
    case OpId::kView:
    case OpId::kPermute:
    case OpId::kExpand:
    case OpId::kSlice:
    case OpId::kClone: return true;
    default: return false;
  }
}

}  // namespace

std::vector<bool> AnglesOfPositions(const Graph& g) {
  // Whether a value is made of integers by what carries them; constants are not.
  std::vector<bool> of_integers(g.num_values(), false), becomes_round(g.num_values(), false), angles(g.num_nodes(), false);
  for (ValueId v : g.inputs) of_integers[v] = IsIndexType(g.type(v).dtype);
  for (NodeId id : g.order) {
    const Node& n = g.node(id);
    if (n.op == OpId::kConst) continue;
    const bool carries = Carries(n.op) && std::any_of(n.operands.begin(), n.operands.end(), [&](ValueId o) { return o != kNone && of_integers[o]; });
    for (ValueId v : n.results) of_integers[v] = carries || IsIndexType(g.type(v).dtype);
  }
  for (auto it = g.order.rbegin(); it != g.order.rend(); ++it) {
    const Node& n = g.node(*it);
    const bool round = IsRound(n.op);
    const bool leads = round || (Carries(n.op) && becomes_round[n.results[0]]);
    if (!leads) continue;
    for (ValueId o : n.operands)
      if (o != kNone) becomes_round[o] = true;
    const ValueId v = round ? n.operands[0] : n.results[0];
    angles[*it] = of_integers[v] && (round || g.type(v).dtype == DType::kF32 || IsIndexType(g.type(v).dtype));
  }
  return angles;
}

}  // namespace dovetail::qnn
