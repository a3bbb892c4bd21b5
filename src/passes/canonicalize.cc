// Removes nodes that change nothing and joins chains of views and permutes.
#include "passes/match.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

std::vector<Dim> ToDims(const Shape& s) { return {s.begin(), s.end()}; }

// A permute that only moves dims of size 1 keeps the order of the elements.
bool KeepsElementOrder(const Shape& from, const std::vector<Dim>& dims) {
  int64_t last = -1;
  for (Dim d : dims) {
    const int64_t axis = d.value() < 0 ? d.value() + static_cast<int64_t>(from.rank()) : d.value();
    if (from[static_cast<size_t>(axis)] == Dim(1)) continue;
    if (axis < last) return false;
    last = axis;
  }
  return true;
}

// x if `v` = op(x, c) with the number c in one element, and of x's type. A weight that happens to hold c everywhere stays a weight.
ValueId MatchIdentity(const Module& module, const Graph& g, ValueId v, OpId op, double c) {
  const auto m = MatchScalar(module, g, v, op);
  if (!m || m->scalar != c || g.type(m->value) != g.type(v)) return kNone;
  const auto [a, b] = MatchBinary(g, v, op);
  return g.type(a == m->value ? b : a).shape.numel() == Dim(1) ? m->value : kNone;
}

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  Graph& g = c.graph;
  // A copy: emitting nodes moves the arena.
  const OpId op = g.node(id).op;
  const std::vector<ValueId> operands = g.node(id).operands;
  const std::vector<ValueId> results = g.node(id).results;
  if (operands.empty() || results.size() != 1 || operands[0] == kNone) return Replacement();
  const ValueId x = operands[0];
  const bool same_type = g.type(x) == g.type(results[0]);
  const Shape out = g.type(results[0]).shape;
  auto replace = [](ValueId v) { return Replacement(std::vector<ValueId>{v}); };
  switch (op) {
    case OpId::kClone: return replace(x);
    case OpId::kToDtype:
    case OpId::kExpand:
      if (same_type) return replace(x);
      return Replacement();
    case OpId::kSlice:
      // Same size and step 1 means from the start.
      if (same_type && IsNumber(GetAttr(g.node(id), "step"), 1)) return replace(x);
      return Replacement();
    case OpId::kView: {
      if (same_type) return replace(x);
      if (const Node* inner = g.producer_if(x, OpId::kView)) {
        const ValueId source = inner->operands[0];
        if (g.type(source).shape == out) return replace(source);
        DT_ASSIGN_OR_RETURN(const ValueId v, c.builder.Emit(OpId::kView, {source}, {{"size", ToDims(out)}}));
        return replace(v);
      }
      return Replacement();
    }
    case OpId::kPermute: {
      std::vector<Dim> dims = GetAttr(g.node(id), "dims").Dims();
      const Shape from = g.type(x).shape;
      if (KeepsElementOrder(from, dims)) {
        if (from == out) return replace(x);
        DT_ASSIGN_OR_RETURN(const ValueId v, c.builder.Emit(OpId::kView, {x}, {{"size", ToDims(out)}}));
        return replace(v);
      }
      if (const Node* inner = g.producer_if(x, OpId::kPermute)) {
        const std::vector<Dim> first = GetAttr(*inner, "dims").Dims();
        const ValueId source = inner->operands[0];
        const int64_t rank = static_cast<int64_t>(first.size());
        for (Dim& d : dims) d = first[static_cast<size_t>(d.value() < 0 ? d.value() + rank : d.value())];
        if (KeepsElementOrder(g.type(source).shape, dims) && g.type(source).shape == out) return replace(source);
        DT_ASSIGN_OR_RETURN(const ValueId v, c.builder.Emit(OpId::kPermute, {source}, {{"dims", std::move(dims)}}));
        return replace(v);
      }
      return Replacement();
    }
    case OpId::kCat:
      if (operands.size() == 1) return replace(x);
      return Replacement();
    case OpId::kMul:
    case OpId::kDiv:
      if (const ValueId v = MatchIdentity(c.module, g, results[0], op, 1); v != kNone) return replace(v);
      return Replacement();
    case OpId::kAdd:
      // Not for floats: -0.0 + 0.0 is 0.0.
      if (!IsInteger(g.type(results[0]).dtype)) return Replacement();
      if (const ValueId v = MatchIdentity(c.module, g, results[0], op, 0); v != kNone) return replace(v);
      return Replacement();
    default: return Replacement();
  }
}

}  // namespace

Status Canonicalize(Module& module) {
  for (auto& g : module.graphs) {
    bool changed = true;
    for (int round = 0; changed && round < 8; ++round) {
      DT_ASSIGN_OR_RETURN(changed, RewriteGraph(module, *g, Rule));
    }
  }
  return OkStatus();
}

}  // namespace dovetail
