// Gives every attention of f32 an additive f32 mask in place of positions, is_causal or a mask of booleans: what a backend without booleans and
// comparisons can take. The same mask is made once (remove_common_nodes follows). Masks are finite; a row of a
// boolean mask that shows nothing gives zeros, as in PyTorch.
#include "passes/match.h"
#include "passes/passes.h"
#include "passes/visible_keys.h"

namespace dovetail {
namespace {

// Far below any score, and finite: exp() of it is 0, and a row of nothing else gives no NaN.
constexpr double kMasked = -1e30;

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  if (c.graph.node(id).op != OpId::kAttention) return Replacement();
  std::vector<ValueId> operands = c.graph.node(id).operands;
  std::vector<Attr> attrs = c.graph.node(id).attrs;
  Builder& b = c.builder;
  if (b.type(operands[0]).dtype != DType::kF32) return Replacement();
  // Only is_causal shows each row its first key for certain: a position may be negative.
  const bool may_show_nothing = (operands[3] != kNone && b.type(operands[3]).dtype == DType::kBool) || operands[4] != kNone;
  DT_ASSIGN_OR_RETURN(const ValueId visible, TakeVisibleKeys(b, operands, attrs));
  if (visible == kNone) return Replacement();
  const ValueId shown = operands[3] == kNone ? b.Splat(0, DType::kF32) : operands[3];
  DT_ASSIGN_OR_RETURN(operands[3], b.Emit(OpId::kWhere, {visible, shown, b.Splat(kMasked, DType::kF32)}));
  DT_ASSIGN_OR_RETURN(std::vector<ValueId> results, b.EmitWith(OpId::kAttention, std::move(operands), std::move(attrs)));
  if (may_show_nothing) {
    DT_ASSIGN_OR_RETURN(const ValueId any, b.Emit(OpId::kAny, {visible}, {{"dim", Attr(-1)}, {"keepdim", true}}));
    DT_ASSIGN_OR_RETURN(const ValueId shows, b.Emit(OpId::kToDtype, {any}, {{"out_dtype", DType::kF32}}));
    DT_ASSIGN_OR_RETURN(results[0], b.Emit(OpId::kMul, {results[0], shows}));
  }
  return Replacement(std::move(results));
}

}  // namespace

Status AdditiveMasks(Module& module) {
  DT_ASSIGN_OR_RETURN(const bool changed, RewriteModule(module, Rule));
  if (!changed) return OkStatus();
  DT_RETURN_IF_ERROR(FoldConstants(module));
  return RemoveCommonNodes(module);
}

}  // namespace dovetail
