// Spells out the fused operators that fixed-point hardware has no operator for: attention, rope, silu and silu_mul. What it has (rms_norm, layer_norm) is
// kept, or made one node.
//
// A mask of attention becomes where(visible, scores, fill) and not an addition, so that the fill is no part of the scores' range. Query heads that share a key
// head are rows of one product: keys and values are not repeated. A row of a boolean mask that shows nothing gives zeros, as in PyTorch.
#include <cmath>

#include "passes/match.h"
#include "passes/passes.h"
#include "passes/spelled.h"
#include "passes/visible_keys.h"

namespace dovetail {
namespace {

using V = Result<ValueId>;

// Far below any score, and finite in f16 too.
constexpr double kFill = -6e4;
// Models mask with numbers from here on down.
constexpr double kMaskedFrom = -1e4;

V View(Builder& b, ValueId x, Shape shape) {
  if (b.type(x).shape == shape) return x;
  return b.Emit(OpId::kView, {x}, {{"size", std::vector<Dim>(shape.begin(), shape.end())}});
}

// The condition of where(condition, 0, fill), else kNone.
ValueId MatchBoolMask(const Module& module, const Graph& g, ValueId v) {
  const Node* where = v == kNone ? nullptr : g.producer_if(v, OpId::kWhere);
  if (!where || g.type(where->operands[0]).dtype != DType::kBool) return kNone;
  const auto on = SplatValue(module, g, where->operands[1]), off = SplatValue(module, g, where->operands[2]);
  return on == 0.0 && off && *off <= kMaskedFrom ? where->operands[0] : kNone;
}

// Query heads that share a key head as rows of it: [.., Hkv, g*S, D].
Shape Grouped(const Shape& s, Dim kv_heads) {
  Shape grouped = s;
  const size_t heads = s.rank() - 3;
  grouped[heads] = kv_heads;
  grouped[heads + 1] = *Dim::DivideExact(s[heads], kv_heads) * s[heads + 1];
  return grouped;
}

V Attention(Builder& b, std::vector<ValueId> operands, std::vector<Attr> attrs, double scale) {
  const bool may_show_nothing = operands[3] != kNone && b.type(operands[3]).dtype == DType::kBool;
  // A float mask of two values only is one of booleans.
  if (const ValueId mask = MatchBoolMask(b.module(), b.graph(), operands[3]); mask != kNone) operands[3] = mask;
  DT_ASSIGN_OR_RETURN(const ValueId visible, TakeVisibleKeys(b, operands, attrs));
  const Shape q = b.type(operands[0]).shape, k = b.type(operands[1]).shape;
  const size_t rank = q.rank();
  const Dim kv_heads = k[rank - 3];
  const bool grouped = q[rank - 3] != kv_heads;
  std::vector<Dim> swapped;
  for (size_t i = 0; i < rank; ++i) swapped.push_back(static_cast<int64_t>(i));
  std::swap(swapped[rank - 1], swapped[rank - 2]);
  DT_ASSIGN_OR_RETURN(const ValueId kt, b.Emit(OpId::kPermute, {operands[1]}, {{"dims", std::move(swapped)}}));
  DT_ASSIGN_OR_RETURN(ValueId query, b.Emit(OpId::kMul, {operands[0], b.Splat(scale, DType::kF32)}));
  if (grouped) {
    DT_ASSIGN_OR_RETURN(query, View(b, query, Grouped(q, kv_heads)));
  }
  DT_ASSIGN_OR_RETURN(ValueId scores, b.Emit(OpId::kMatmul, {query, kt}));
  Shape each = q;  // [.., H, S, T]
  each[rank - 1] = k[rank - 2];
  DT_ASSIGN_OR_RETURN(scores, View(b, scores, each));
  if (operands[3] != kNone) {
    DT_ASSIGN_OR_RETURN(scores, b.Emit(OpId::kAdd, {scores, operands[3]}));
  }
  if (visible != kNone) {
    DT_ASSIGN_OR_RETURN(scores, b.Emit(OpId::kWhere, {visible, scores, b.Splat(kFill, DType::kF32)}));
  }
  DT_ASSIGN_OR_RETURN(ValueId weights, b.Emit(OpId::kSoftmax, {scores}, {{"dim", -1}}));
  if (grouped) {
    DT_ASSIGN_OR_RETURN(weights, View(b, weights, Grouped(each, kv_heads)));
  }
  DT_ASSIGN_OR_RETURN(ValueId y, b.Emit(OpId::kMatmul, {weights, operands[2]}));
  each[rank - 1] = b.type(operands[2]).shape.back();
  DT_ASSIGN_OR_RETURN(y, View(b, y, each));
  if (!may_show_nothing) return y;
  DT_ASSIGN_OR_RETURN(const ValueId any, b.Emit(OpId::kAny, {visible}, {{"dim", Attr(-1)}, {"keepdim", true}}));
  DT_ASSIGN_OR_RETURN(const ValueId shows, b.Emit(OpId::kToDtype, {any}, {{"out_dtype", DType::kF32}}));
  return b.Emit(OpId::kMul, {y, shows});
}

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  const OpId op = c.graph.node(id).op;
  const std::vector<ValueId> o = c.graph.node(id).operands;
  Builder& b = c.builder;
  if (c.graph.node(id).results.empty() || c.graph.type(c.graph.node(id).results[0]).dtype != DType::kF32) return Replacement();
  V v = kNone;
  switch (op) {
    case OpId::kRope: v = SpellRope(b, o[0], o[1], o[2]); break;
    case OpId::kSilu: v = SpellSilu(b, o[0]); break;
    case OpId::kSiluMul: {
      DT_ASSIGN_OR_RETURN(const ValueId s, SpellSilu(b, o[0]));
      v = b.Emit(OpId::kMul, {s, o[1]});
      break;
    }
    case OpId::kAttention: {
      const Attr scale = GetAttr(c.graph.node(id), "scale");
      const Dim width = b.type(o[0]).shape.back();
      if (!width.is_constant() && scale.is_none()) return Replacement();
      if (o[3] != kNone && b.type(o[3]).dtype != DType::kBool && b.type(o[3]).dtype != DType::kF32) return Replacement();
      v = Attention(b, o, std::vector<Attr>(c.graph.node(id).attrs), scale.is_none() ? 1 / std::sqrt(static_cast<double>(width.value())) : scale.Number());
      break;
    }
    default: return Replacement();
  }
  if (!v.ok()) return std::move(v).status();
  return Replacement(std::vector<ValueId>{*v});
}

}  // namespace

Status SpellOutFused(Module& module) {
  DT_RETURN_IF_ERROR(FuseLayerNorm(module));
  DT_ASSIGN_OR_RETURN(const bool changed, RewriteModule(module, Rule));
  if (!changed) return OkStatus();
  DT_RETURN_IF_ERROR(FoldConstants(module));
  return RemoveCommonNodes(module);
}

}  // namespace dovetail
