// Gives every attention an additive f32 mask [S,T] in place of positions, is_causal or a mask of booleans: what a backend without
// booleans and comparisons can take. The same mask is made once (remove_common_nodes follows).
#include "passes/match.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

// Far below any score, and finite: exp() of it is 0, and a row of nothing else gives no NaN.
constexpr double kMasked = -1e30;

Result<ValueId> FromBool(Builder& b, ValueId condition) {
  const ValueId zero = b.Splat(0, DType::kF32), low = b.Splat(kMasked, DType::kF32);
  return b.Emit(OpId::kWhere, {condition, zero, low});
}

Result<ValueId> Iota(Builder& b, Dim end) { return b.Emit(OpId::kArange, {}, {{"start", Attr(0)}, {"end", Attr(end)}, {"out_dtype", DType::kI64}}); }

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  if (c.graph.node(id).op != OpId::kAttention) return Replacement();
  std::vector<ValueId> operands = c.graph.node(id).operands;
  std::vector<Attr> attrs = c.graph.node(id).attrs;
  const bool causal = GetAttr(c.graph.node(id), "is_causal").Bool();
  if (c.graph.type(operands[0]).dtype != DType::kF32 || c.graph.type(operands[0]).rank() != 4) return Replacement();
  const Dim s = c.graph.type(operands[0]).shape[2], t = c.graph.type(operands[1]).shape[2];
  Builder& b = c.builder;
  if (operands[4] != kNone || causal) {
    if (operands[3] != kNone) return Replacement();
    ValueId rows = operands[4];
    if (causal) {
      DT_ASSIGN_OR_RETURN(rows, Iota(b, s));
    }
    DT_ASSIGN_OR_RETURN(const ValueId column, b.Emit(OpId::kView, {rows}, {{"size", std::vector<Dim>{s, 1}}}));
    DT_ASSIGN_OR_RETURN(const ValueId keys, Iota(b, t));
    DT_ASSIGN_OR_RETURN(const ValueId visible, b.Emit(OpId::kGe, {column, keys}));
    DT_ASSIGN_OR_RETURN(operands[3], FromBool(b, visible));
    operands[4] = kNone;
    attrs[static_cast<size_t>(GetSchema(OpId::kAttention).Find("is_causal")->index)] = Attr(false);
  } else if (operands[3] != kNone && c.graph.type(operands[3]).dtype == DType::kBool) {
    DT_ASSIGN_OR_RETURN(operands[3], FromBool(b, operands[3]));
  } else {
    return Replacement();
  }
  DT_ASSIGN_OR_RETURN(std::vector<ValueId> results, b.EmitWith(OpId::kAttention, std::move(operands), std::move(attrs)));
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
