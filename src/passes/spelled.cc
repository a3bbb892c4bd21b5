#include "passes/spelled.h"

namespace dovetail {

Result<ValueId> SpellRope(Builder& b, ValueId x, ValueId cos, ValueId sin) {
  const int64_t half = b.type(x).shape.back().value() / 2;
  DT_ASSIGN_OR_RETURN(const ValueId low, b.Emit(OpId::kSlice, {x}, {{"dim", -1}, {"start", 0}, {"end", half}}));
  DT_ASSIGN_OR_RETURN(const ValueId high, b.Emit(OpId::kSlice, {x}, {{"dim", -1}, {"start", half}, {"end", 2 * half}}));
  DT_ASSIGN_OR_RETURN(const ValueId negated, b.Emit(OpId::kNeg, {high}));
  DT_ASSIGN_OR_RETURN(const ValueId rotated, b.Emit(OpId::kCat, {negated, low}, {{"dim", -1}}));
  DT_ASSIGN_OR_RETURN(const ValueId p, b.Emit(OpId::kMul, {x, cos}));
  DT_ASSIGN_OR_RETURN(const ValueId q, b.Emit(OpId::kMul, {rotated, sin}));
  return b.Emit(OpId::kAdd, {p, q});
}

Result<ValueId> SpellSilu(Builder& b, ValueId x) {
  DT_ASSIGN_OR_RETURN(const ValueId s, b.Emit(OpId::kSigmoid, {x}));
  return b.Emit(OpId::kMul, {x, s});
}

}  // namespace dovetail
