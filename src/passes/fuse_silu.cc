// x * sigmoid(x) becomes silu(x) (Hendrycks & Gimpel, 2016); silu(gate) * up becomes silu_mul(gate, up), the gated unit of Llama's MLP
// (SwiGLU: Shazeer, 2020). Of f32 only: a shorter type would have been rounded between the steps.
#include "passes/match.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  const Graph& g = c.graph;
  const Node& n = g.node(id);
  if (n.op != OpId::kMul || g.type(n.results[0]).dtype != DType::kF32) return Replacement();
  const ValueId a = n.operands[0], b = n.operands[1];
  for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a)}) {
    if (MatchUnary(g, y, OpId::kSigmoid) == x && c.use_count(y) == 1) {
      DT_ASSIGN_OR_RETURN(const ValueId v, c.builder.Emit(OpId::kSilu, {x}));
      return Replacement(std::vector<ValueId>{v});
    }
    // Only when the silu is used here alone, and both factors have the result's shape.
    const ValueId gate = MatchUnary(g, y, OpId::kSilu);
    if (gate != kNone && c.use_count(y) == 1 && g.type(x) == g.type(gate)) {
      DT_ASSIGN_OR_RETURN(const ValueId v, c.builder.Emit(OpId::kSiluMul, {gate, x}));
      return Replacement(std::vector<ValueId>{v});
    }
  }
  return Replacement();
}

}  // namespace

Status FuseSilu(Module& module) {
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteModule(module, Rule));
  return OkStatus();
}

}  // namespace dovetail
