// Small predicates that patterns are written with.
#pragma once

#include <optional>
#include <utility>

#include "ir/rewrite.h"

namespace dovetail {

// Whether an attribute is the number `v`. A symbolic size is none, and neither is an absent attribute.
bool IsNumber(const Attr& a, double v);

// The number that every element of `v` is, or nullopt.
std::optional<double> SplatValue(const Module& module, const Graph& graph, ValueId v);

// `v` = op(x, c) or, for commutative operators, op(c, x), where c is a splat: {x, c}.
struct ScalarOperand {
  ValueId value;
  double scalar;
};
std::optional<ScalarOperand> MatchScalar(const Module& module, const Graph& graph, ValueId v, OpId op);

// The two operands of a binary node that produces `v` (an add or sub with alpha 1), or {kNone, kNone}.
std::pair<ValueId, ValueId> MatchBinary(const Graph& graph, ValueId v, OpId op);
// The operand of a unary node that produces `v`, or kNone.
ValueId MatchUnary(const Graph& graph, ValueId v, OpId op);

}  // namespace dovetail
