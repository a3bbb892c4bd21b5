#include "passes/visible_keys.h"

namespace dovetail {
namespace {

Result<ValueId> Iota(Builder& b, Dim end, DType dtype) { return b.Emit(OpId::kArange, {}, {{"start", Attr(0)}, {"end", Attr(end)}, {"out_dtype", dtype}}); }

// Whether row i may attend key j, j <= rows[i]: bool [S,T].
Result<ValueId> UpTo(Builder& b, ValueId rows, Dim s, Dim t) {
  DT_ASSIGN_OR_RETURN(const ValueId column, b.Emit(OpId::kView, {rows}, {{"size", std::vector<Dim>{s, 1}}}));
  DT_ASSIGN_OR_RETURN(const ValueId keys, Iota(b, t, b.type(rows).dtype));
  return b.Emit(OpId::kGe, {column, keys});
}

}  // namespace

Result<ValueId> TakeVisibleKeys(Builder& b, std::vector<ValueId>& operands, std::vector<Attr>& attrs) {
  const TensorType query = b.type(operands[0]);
  const Dim s = query.shape[query.rank() - 2], t = b.type(operands[1]).shape[query.rank() - 2];
  std::vector<ValueId> conditions;
  if (operands[3] != kNone && b.type(operands[3]).dtype == DType::kBool) {
    conditions.push_back(operands[3]);
    operands[3] = kNone;
  }
  if (operands[4] != kNone) {
    DT_ASSIGN_OR_RETURN(conditions.emplace_back(), UpTo(b, operands[4], s, t));
    operands[4] = kNone;
  }
  if (Attr& causal = attrs[static_cast<size_t>(GetSchema(OpId::kAttention).Find("is_causal")->index)]; causal.Bool()) {
    DT_ASSIGN_OR_RETURN(const ValueId rows, Iota(b, s, DType::kI64));
    DT_ASSIGN_OR_RETURN(conditions.emplace_back(), UpTo(b, rows, s, t));
    causal = Attr(false);
  }
  if (conditions.empty()) return kNone;
  ValueId visible = conditions[0];
  for (size_t i = 1; i < conditions.size(); ++i) {
    DT_ASSIGN_OR_RETURN(visible, b.Emit(OpId::kLogicalAnd, {visible, conditions[i]}));
  }
  return visible;
}

}  // namespace dovetail
