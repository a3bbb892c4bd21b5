// (x - mean) * rsqrt(mean((x - mean)^2) + eps) over the last dim becomes layer_norm(x, 1, 0, eps) (Ba et al., 2016); a weight and a bias behind it become its
// own. With a weight it is rms_norm(x - mean, weight) by now. Of f32 only, steps between included: a shorter type would have been rounded there.
#include "passes/match.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

bool IsFloat32(const Graph& g, ValueId v) { return g.type(v).dtype == DType::kF32; }

// x if `v` is its mean over the last dim, kept; else kNone.
ValueId MatchMean(const Graph& g, ValueId v) {
  const Node* mean = g.producer_if(v, OpId::kMean);
  if (!mean || !IsFloat32(g, v) || !IsFloat32(g, mean->operands[0])) return kNone;
  if (!GetAttr(*mean, "keepdim").Bool() || !GetAttr(*mean, "dtype").is_none()) return kNone;
  const int64_t rank = static_cast<int64_t>(g.type(mean->operands[0]).rank());
  const Attr& dim = GetAttr(*mean, "dim");
  if (dim.is_none() || dim.Dims().size() != 1 || (dim.IntAt(0) != -1 && dim.IntAt(0) != rank - 1)) return kNone;
  return mean->operands[0];
}

ValueId MatchSquare(const Graph& g, ValueId v) {
  if (const Node* pow = g.producer_if(v, OpId::kPowTensorScalar)) return GetAttr(*pow, "exponent").Number() == 2 ? pow->operands[0] : kNone;
  const auto [a, b] = MatchBinary(g, v, OpId::kMul);
  return a == b ? a : kNone;
}

// x of x - mean(x), else kNone.
ValueId MatchCentered(const Graph& g, ValueId v) {
  const auto [x, mean] = MatchBinary(g, v, OpId::kSub);
  return x != kNone && IsFloat32(g, v) && MatchMean(g, mean) == x ? x : kNone;
}

struct Standardized {
  ValueId x;
  double eps;
};
// Of centered * scale.
std::optional<Standardized> Match(const Module& module, const Graph& g, ValueId centered, ValueId scale) {
  const ValueId x = MatchCentered(g, centered);
  if (x == kNone || !IsFloat32(g, scale)) return std::nullopt;
  const ValueId shifted = MatchUnary(g, scale, OpId::kRsqrt);
  const auto eps = shifted == kNone ? std::nullopt : MatchScalar(module, g, shifted, OpId::kAdd);
  if (!eps || !IsFloat32(g, shifted)) return std::nullopt;
  const ValueId squares = MatchMean(g, eps->value);
  if (squares == kNone || MatchSquare(g, squares) != centered) return std::nullopt;
  return Standardized{x, eps->scalar};
}

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  const Graph& g = c.graph;
  const Node& n = g.node(id);
  if (n.op == OpId::kRmsNorm) {
    const ValueId x = MatchCentered(g, n.operands[0]), weight = n.operands[1];
    const Shape row{g.type(n.operands[0]).shape.back()};
    if (x == kNone || !row.is_constant() || !IsFloat32(g, n.results[0])) return Replacement();
    const double eps = GetAttr(n, "eps").Number();
    DT_ASSIGN_OR_RETURN(const ValueId v, c.builder.Emit(OpId::kLayerNorm, {x, weight, c.builder.Splat(0, DType::kF32, row)}, {{"eps", eps}}));
    return Replacement(std::vector<ValueId>{v});
  }
  if ((n.op != OpId::kMul && n.op != OpId::kAdd) || !IsFloat32(g, n.results[0])) return Replacement();
  for (size_t side = 0; side < 2; ++side) {
    const ValueId a = n.operands[side], b = n.operands[1 - side];
    if (const auto found = n.op == OpId::kMul ? Match(c.module, g, a, b) : std::nullopt) {
      const Shape row{g.type(found->x).shape.back()};
      if (!row.is_constant()) continue;
      const ValueId one = c.builder.Splat(1, DType::kF32, row), zero = c.builder.Splat(0, DType::kF32, row);
      DT_ASSIGN_OR_RETURN(const ValueId v, c.builder.Emit(OpId::kLayerNorm, {found->x, one, zero}, {{"eps", found->eps}}));
      return Replacement(std::vector<ValueId>{v});
    }
    const Node* norm = g.producer_if(a, OpId::kLayerNorm);
    if (!norm || c.use_count(a) != 1 || g.type(b) != g.type(norm->operands[1]) || SplatValue(c.module, g, norm->operands[2]) != 0.0) continue;
    const bool weight = n.op == OpId::kMul;
    if (weight ? SplatValue(c.module, g, norm->operands[1]) != 1.0 : GetAttr(n, "alpha").Number(1) != 1) continue;
    const std::vector<ValueId> operands = {norm->operands[0], weight ? b : norm->operands[1], weight ? norm->operands[2] : b};
    DT_ASSIGN_OR_RETURN(const ValueId v, c.builder.Emit(OpId::kLayerNorm, operands, {{"eps", GetAttr(*norm, "eps").Number()}}));
    return Replacement(std::vector<ValueId>{v});
  }
  return Replacement();
}

}  // namespace

Status FuseLayerNorm(Module& module) {
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteModule(module, Rule));
  return OkStatus();
}

}  // namespace dovetail
