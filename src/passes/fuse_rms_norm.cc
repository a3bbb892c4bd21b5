// x * rsqrt(mean(x * x, -1, keepdim) + eps) * weight becomes rms_norm(x, weight, eps) (Zhang & Sennrich, 2019). Weight and product in
// any order; pow(x, 2) or x * x. Of f32 only: a shorter type would have been rounded between the steps.
#include "passes/match.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

// x if `v` is the mean of x squared over the last dim, kept; else kNone.
ValueId MatchMeanSquare(const Graph& g, ValueId v) {
  const Node* mean = g.producer_if(v, OpId::kMean);
  if (!mean || !GetAttr(*mean, "keepdim").Bool() || !GetAttr(*mean, "dtype").is_none()) return kNone;
  const ValueId squared = mean->operands[0];
  const int64_t rank = static_cast<int64_t>(g.type(squared).rank());
  const Attr& dim = GetAttr(*mean, "dim");
  if (dim.Dims().size() != 1 || (dim.IntAt(0) != -1 && dim.IntAt(0) != rank - 1)) return kNone;
  if (const Node* pow = g.producer_if(squared, OpId::kPowTensorScalar)) return GetAttr(*pow, "exponent").Number() == 2 ? pow->operands[0] : kNone;
  const auto [a, b] = MatchBinary(g, squared, OpId::kMul);
  return a == b ? a : kNone;
}

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  const Graph& g = c.graph;
  const Node& n = g.node(id);
  if (n.op != OpId::kMul || g.type(n.results[0]).dtype != DType::kF32) return Replacement();
  for (size_t side = 0; side < 2; ++side) {
    const ValueId weight = n.operands[1 - side];
    const auto [a, b] = MatchBinary(g, n.operands[side], OpId::kMul);
    if (a == kNone || g.type(weight).rank() != 1 || c.use_count(n.operands[side]) != 1) continue;
    for (const auto& [x, scale] : {std::pair(a, b), std::pair(b, a)}) {
      const ValueId shifted = MatchUnary(g, scale, OpId::kRsqrt);
      if (shifted == kNone) continue;
      const auto eps = MatchScalar(c.module, g, shifted, OpId::kAdd);
      if (!eps || MatchMeanSquare(g, eps->value) != x) continue;
      if (g.type(weight).shape.back() != g.type(x).shape.back() || g.type(weight).dtype != g.type(x).dtype) continue;
      DT_ASSIGN_OR_RETURN(const ValueId v, c.builder.Emit(OpId::kRmsNorm, {x, weight}, {{"eps", eps->scalar}}));
      return Replacement(std::vector<ValueId>{v});
    }
  }
  return Replacement();
}

}  // namespace

Status FuseRmsNorm(Module& module) {
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteModule(module, Rule));
  return OkStatus();
}

}  // namespace dovetail
