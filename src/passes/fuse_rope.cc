// x * cos + cat(-x[.., D/2:], x[.., :D/2]) * sin becomes rope(x, cos, sin): the rotary embedding in the layout of halves (Su et al.,
// 2021, as GPT-NeoX and Llama checkpoints on Hugging Face store it). Of f32 only: a shorter type would have been rounded between the steps.
#include "passes/match.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

// Whether `v` is the half [first, first + D/2) of the last dim of `x`.
bool IsHalf(const Graph& g, ValueId v, ValueId x, bool upper) {
  const Node* s = g.producer_if(v, OpId::kSlice);
  if (!s || s->operands[0] != x) return false;
  const int64_t rank = static_cast<int64_t>(g.type(x).rank());
  const int64_t dim = GetAttr(*s, "dim").Int();
  const auto size = g.type(x).shape.back().constant();
  if (!size || *size % 2 || (dim != -1 && dim != rank - 1) || !IsNumber(GetAttr(*s, "step"), 1)) return false;
  if (g.type(v).shape.back() != Dim(*size / 2)) return false;
  const Attr& start = GetAttr(*s, "start");
  if (upper) return IsNumber(start, static_cast<double>(*size / 2)) || IsNumber(start, static_cast<double>(-(*size / 2)));
  return start.is_none() || IsNumber(start, 0) || IsNumber(start, static_cast<double>(-*size));
}

// x if `v` is rotate_half(x), else kNone.
ValueId MatchRotateHalf(const Graph& g, ValueId v) {
  const Node* cat = g.producer_if(v, OpId::kCat);
  if (!cat || cat->operands.size() != 2) return kNone;
  const int64_t rank = static_cast<int64_t>(g.type(v).rank());
  const int64_t dim = GetAttr(*cat, "dim").Int();
  if (dim != -1 && dim != rank - 1) return kNone;
  const ValueId upper = MatchUnary(g, cat->operands[0], OpId::kNeg);
  const Node* slice = upper == kNone ? nullptr : g.producer_if(upper, OpId::kSlice);
  if (!slice) return kNone;
  const ValueId x = slice->operands[0];
  return IsHalf(g, upper, x, true) && IsHalf(g, cat->operands[1], x, false) ? x : kNone;
}

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  const Graph& g = c.graph;
  const Node& n = g.node(id);
  if (n.op != OpId::kAdd || !IsNumber(GetAttr(n, "alpha"), 1) || g.type(n.results[0]).dtype != DType::kF32) return Replacement();
  for (size_t side = 0; side < 2; ++side) {
    const auto [p, q] = MatchBinary(g, n.operands[side], OpId::kMul);
    const auto [r, s] = MatchBinary(g, n.operands[1 - side], OpId::kMul);
    if (p == kNone || r == kNone || c.use_count(n.operands[side]) != 1 || c.use_count(n.operands[1 - side]) != 1) continue;
    for (const auto& [rotated, sin] : {std::pair(r, s), std::pair(s, r)}) {
      const ValueId x = MatchRotateHalf(g, rotated);
      if (x == kNone || (x != p && x != q) || g.type(x).rank() != 4) continue;
      const ValueId cos = x == p ? q : p;
      // The tables must broadcast to x and not the other way round.
      if (g.type(n.results[0]).shape != g.type(x).shape || g.type(cos).shape != g.type(sin).shape) continue;
      if (g.type(cos).rank() < 2 || g.type(cos).shape.back() != g.type(x).shape.back()) continue;
      DT_ASSIGN_OR_RETURN(const ValueId v, c.builder.Emit(OpId::kRope, {x, cos, sin}));
      return Replacement(std::vector<ValueId>{v});
    }
  }
  return Replacement();
}

}  // namespace

Status FuseRope(Module& module) {
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteModule(module, Rule));
  return OkStatus();
}

}  // namespace dovetail
