// The rotary embedding in the layout of halves (Su et al., 2021, as GPT-NeoX and Llama checkpoints on Hugging Face store it), in two spellings:
// x * cos + cat(-x[.., D/2:], x[.., :D/2]) * sin becomes rope(x, cos, sin). With low and high for the halves of x and tables of half the width,
// cat(low * cos - high * sin, high * cos + low * sin) becomes rope(x, cat(cos, cos), cat(sin, sin)); layers share these tables.
// Of f32 only: a shorter type would have been rounded between the steps.
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

// `v` = half * table, where half is the lower or upper half of the last dim of some x: {x, table}.
struct HalfProduct {
  ValueId x = kNone, table = kNone;
};
HalfProduct MatchHalfProduct(const Graph& g, ValueId v, bool upper, ValueId table) {
  const auto [a, b] = MatchBinary(g, v, OpId::kMul);
  for (const auto& [half, other] : {std::pair(a, b), std::pair(b, a)}) {
    const Node* slice = half == kNone || (table != kNone && other != table) ? nullptr : g.producer_if(half, OpId::kSlice);
    if (slice && IsHalf(g, half, slice->operands[0], upper)) return {slice->operands[0], other};
  }
  return {};
}

Result<Replacement> JoinedHalves(RewriteContext& c, const Node& n) {
  const Graph& g = c.graph;
  const ValueId out = n.results[0];
  const int64_t rank = static_cast<int64_t>(g.type(out).rank()), dim = GetAttr(n, "dim").Int();
  if (n.operands.size() != 2 || rank != 4 || (dim != -1 && dim != rank - 1) || g.type(out).dtype != DType::kF32) return Replacement();
  const auto [low_cos, high_sin] = MatchBinary(g, n.operands[0], OpId::kSub);
  const auto [p, q] = MatchBinary(g, n.operands[1], OpId::kAdd);
  if (low_cos == kNone || p == kNone) return Replacement();
  const auto [x, cos] = MatchHalfProduct(g, low_cos, false, kNone);
  const auto [high, sin] = MatchHalfProduct(g, high_sin, true, kNone);
  if (x == kNone || high != x || g.type(x).shape != g.type(out).shape || cos == sin) return Replacement();
  const auto second = [&](ValueId a, ValueId b) { return MatchHalfProduct(g, a, true, cos).x == x && MatchHalfProduct(g, b, false, sin).x == x; };
  if (!second(p, q) && !second(q, p)) return Replacement();
  const Shape &cs = g.type(cos).shape, half = g.type(n.operands[0]).shape;
  if (cs != g.type(sin).shape || cs.rank() < 2 || cs.back() != half.back()) return Replacement();
  const Attr last(int64_t{-1});
  DT_ASSIGN_OR_RETURN(const ValueId wide_cos, c.builder.Emit(OpId::kCat, {cos, cos}, {{"dim", last}}));
  DT_ASSIGN_OR_RETURN(const ValueId wide_sin, c.builder.Emit(OpId::kCat, {sin, sin}, {{"dim", last}}));
  DT_ASSIGN_OR_RETURN(const ValueId v, c.builder.Emit(OpId::kRope, {x, wide_cos, wide_sin}));
  return Replacement(std::vector<ValueId>{v});
}

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  const Graph& g = c.graph;
  const Node& n = g.node(id);
  if (n.op == OpId::kCat) return JoinedHalves(c, n);
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
