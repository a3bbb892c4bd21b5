#include "backends/qnn/angles.h"

#include <algorithm>
#include <set>

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

// Whether `v` is made of integers by what carries them.
bool OfIntegers(const Graph& g, ValueId v, std::set<ValueId>& seen) {
  if (v == kNone || !seen.insert(v).second) return false;
  const Node* n = g.producer(v);
  if (n && n->op == OpId::kConst) return false;
  if (IsIndexType(g.type(v).dtype)) return true;
  return n && Carries(n->op) && std::any_of(n->operands.begin(), n->operands.end(), [&](ValueId o) { return OfIntegers(g, o, seen); });
}

bool BecomesRound(const Graph& g, const std::vector<std::vector<NodeId>>& users, ValueId v, std::set<ValueId>& seen) {
  if (!seen.insert(v).second) return false;
  return std::any_of(users[v].begin(), users[v].end(), [&](NodeId id) {
    const Node& user = g.node(id);
    if (IsRound(user.op)) return true;
    return Carries(user.op) && std::any_of(user.results.begin(), user.results.end(), [&](ValueId r) { return BecomesRound(g, users, r, seen); });
  });
}

}  // namespace

bool IsAngleOfPositions(const Graph& graph, const Node& node) {
  if (!Carries(node.op) && !IsRound(node.op)) return false;
  const ValueId v = node.results[0];
  std::set<ValueId> seen;
  if (IsRound(node.op)) return OfIntegers(graph, node.operands[0], seen);
  if ((graph.type(v).dtype != DType::kF32 && !IsIndexType(graph.type(v).dtype)) || !OfIntegers(graph, v, seen)) return false;
  seen.clear();
  return BecomesRound(graph, graph.Users(), v, seen);
}

}  // namespace dovetail::qnn
