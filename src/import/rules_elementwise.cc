// Operators that work element by element. Operands of one operator get one dtype here, by torch's promotion.
#include <cmath>
#include <limits>

#include "import/rules.h"
#include "ops/infer_util.h"

namespace dovetail::pt2 {
namespace {

// The parts of complex numbers, each [..., 1].
ValueId Part(Call& c, ValueId v, int64_t part) {
  return c.Emit(OpId::kSlice, {v}, {{"dim", static_cast<int64_t>(c.shape(v).rank()) - 1}, {"start", part}, {"end", part + 1}});
}
ValueId Join(Call& c, ValueId real, ValueId imag) {
  if (!c.ok()) return kNone;
  return c.Emit(OpId::kCat, {real, imag}, {{"dim", static_cast<int64_t>(c.shape(real).rank()) - 1}});
}
ValueId WithLastOne(Call& c, ValueId v) {
  std::vector<Dim> sizes(c.shape(v).begin(), c.shape(v).end());
  sizes.push_back(1);
  return c.Reshape(v, std::move(sizes));
}

void ComplexBinary(Call& c, OpId op, TensorId a, TensorId b) {
  ValueId x = c.Read(a), y = c.Read(b);
  if (c.Has("alpha")) return c.Fail(Unsupported("alpha with complex numbers"));
  const bool both = c.is_complex(a) && c.is_complex(b);
  if (op == OpId::kMul && both) {
    const ValueId xr = Part(c, x, 0), xi = Part(c, x, 1), yr = Part(c, y, 0), yi = Part(c, y, 1);
    const ValueId real = c.Binary(OpId::kSub, c.Binary(OpId::kMul, xr, yr), c.Binary(OpId::kMul, xi, yi));
    const ValueId imag = c.Binary(OpId::kAdd, c.Binary(OpId::kMul, xr, yi), c.Binary(OpId::kMul, xi, yr));
    return c.Return(Join(c, real, imag), true);
  }
  if ((op == OpId::kAdd || op == OpId::kSub) && both) return c.Return(c.Binary(op, x, y), true);
  if ((op == OpId::kMul || (op == OpId::kDiv && c.is_complex(a))) && !both) {
    ValueId& real = c.is_complex(a) ? y : x;
    if (!c.IsTensor("other")) real = c.ScalarTensor(c.Scalar("other"), DType::kF32);
    else real = WithLastOne(c, c.Convert(real, DType::kF32));
    return c.Return(c.Binary(op, x, y), true);
  }
  c.Fail(Unsupported("complex numbers in this operator"));
}

enum class Mode : uint8_t { kPlain, kTrueDivision, kTruncated, kBool };

// What `op`, floor_divide or remainder, would be with the quotient rounded towards zero: of |a| and |b|, with the sign put back.
ValueId Truncated(Call& c, OpId op, ValueId a, ValueId b) {
  if (!c.ok()) return kNone;
  const ValueId size = c.Emit(op, {c.Emit(OpId::kAbs, {a}), c.Emit(OpId::kAbs, {b})}), zero = c.ScalarTensor(0, c.type(a).dtype);
  ValueId negative = c.Emit(OpId::kLt, {a, zero});
  if (op == OpId::kFloorDivide) negative = c.Emit(OpId::kNe, {negative, c.Emit(OpId::kLt, {b, zero})});
  return c.Emit(OpId::kWhere, {negative, c.Emit(OpId::kNeg, {size}), size});
}

// self and other are tensors or numbers, one at least a tensor.
void Binary(Call& c, OpId op, Mode mode, std::string_view left, std::string_view right) {
  const bool a_tensor = c.IsTensor(left), b_tensor = c.IsTensor(right);
  if (!a_tensor && !b_tensor) return c.Fail(Unsupported("two numbers as operands"));
  const TensorId ha = a_tensor ? c.Handle(left) : kNone, hb = b_tensor ? c.Handle(right) : kNone;
  if (c.is_complex(ha) || c.is_complex(hb)) return ComplexBinary(c, op, ha, hb);
  const Attr number = a_tensor && b_tensor ? Attr() : c.Scalar(a_tensor ? right : left);
  DType dtype = a_tensor && b_tensor ? PromoteOperands(c.handle_type(ha), c.handle_type(hb)) : PromoteScalar(c.handle_type(a_tensor ? ha : hb).dtype, number);
  const Attr alpha = c.Scalar("alpha");
  if (alpha.is<double>() && !IsFloat(dtype)) return c.Fail(InvalidArgument("alpha is a float and the operands are integers"));
  if (mode == Mode::kTrueDivision && !IsFloat(dtype)) dtype = DType::kF32;
  if (mode == Mode::kBool) dtype = DType::kBool;
  const ValueId a = a_tensor ? c.Convert(c.Read(ha), dtype) : c.ScalarTensor(number, dtype);
  ValueId b = b_tensor ? c.Convert(c.Read(hb), dtype) : c.ScalarTensor(number, dtype);
  if (!alpha.is_none() && alpha.Number() != 1) b = c.Emit(OpId::kMul, {b, c.ScalarTensor(alpha, dtype)});
  if (mode != Mode::kTruncated) return c.Return(c.Emit(op, {a, b}));
  if (op == OpId::kFloorDivide && IsFloat(dtype)) return c.Return(c.Emit(OpId::kTrunc, {c.Emit(OpId::kDiv, {a, b})}));
  c.Return(Truncated(c, op, a, b));
}
template <OpId kOp, Mode kMode = Mode::kPlain>
void Apply(Call& c) {
  Binary(c, kOp, kMode, "self", "other");
}
// other OP self
template <OpId kOp>
void ApplyReversed(Call& c) {
  Binary(c, kOp, Mode::kPlain, "other", "self");
}

// The number that a tensor of rank 0 is.
std::optional<double> NumberOf(const Call& c, ValueId v) {
  if (const Node* full = c.Producer(v); full && full->op == OpId::kFull && c.shape(v).empty()) {
    const Attr& value = GetAttr(*full, "fill_value");
    return value.is<Dim>() && !value.get<Dim>()->is_constant() ? std::nullopt : std::optional(value.Number());
  }
  const Constant* constant = c.GetConstant(v);
  if (!constant || !constant->type.shape.empty() || !constant->data_known) return std::nullopt;
  return Numbers(*constant)[0];
}
// maximum or minimum; with a number, as run_decompositions spells log_sigmoid, a clamp.
template <OpId kOp>
void Extremum(Call& c) {
  const ValueId a = c.Tensor("self"), b = c.Tensor("other");
  for (const auto& [x, y] : {std::pair(a, b), std::pair(b, a)}) {
    const auto number = NumberOf(c, y);
    if (number && !std::isnan(*number) && IsFloat(c.type(x).dtype) && c.type(x).dtype == c.type(y).dtype)
      return c.Return(c.Emit(OpId::kClamp, {x}, {{kOp == OpId::kMaximum ? "min" : "max", *number}}));
  }
  Apply<kOp>(c);
}

// `number` has the tensor's dtype.
ValueId WithNumber(Call& c, OpId op, ValueId x, double number) { return c.Emit(op, {x, c.ScalarTensor(number, c.type(x).dtype)}); }

void Power(Call& c) { Binary(c, OpId::kPowTensorTensor, Mode::kPlain, "self", "exponent"); }

void Rsub(Call& c) {
  if (c.Has("alpha") && c.Float("alpha") != 1) return c.Fail(Unsupported("rsub with alpha"));
  ApplyReversed<OpId::kSub>(c);
}

template <OpId kOp>
void Bitwise(Call& c) {
  const TensorId self = c.Handle(c.IsTensor("self") ? "self" : "other");
  if (c.handle_type(self).dtype != DType::kBool) return c.Fail(Unsupported("bits of integers; only bool operands"));
  Binary(c, kOp, Mode::kBool, "self", "other");
}

void DivMode(Call& c) {
  const std::string_view mode = c.String("rounding_mode", "");
  if (mode.empty()) Apply<OpId::kDiv, Mode::kTrueDivision>(c);
  else if (mode == "floor") Apply<OpId::kFloorDivide>(c);
  else if (mode == "trunc") Apply<OpId::kFloorDivide, Mode::kTruncated>(c);
  else c.Fail(Unsupported("a division that rounds ('", mode, "')"));
}

// What torch computes in: f32 for shorter floats.
ValueId Widened(Call& c, ValueId x) {
  const DType dtype = c.type(x).dtype;
  return IsFloat(dtype) && dtype != DType::kF64 ? c.Convert(x, DType::kF32) : x;
}
// log(1 + exp(-|x|))
ValueId Log1pOfExp(Call& c, ValueId x) {
  return c.Emit(OpId::kLog1p, {c.Emit(OpId::kExp, {c.Emit(OpId::kNeg, {c.Emit(OpId::kAbs, {x})})})});
}
// log(1 + exp(beta x)) / beta of beta x: as max(beta x, 0) + log(1 + exp(-|beta x|)), which does not overflow. Where beta x > threshold it is x; nothing
// is spent on that when the type does not show the difference.
ValueId SoftplusOf(Call& c, ValueId x, ValueId scaled, double beta, double threshold) {
  if (!c.ok()) return kNone;
  ValueId y = c.Emit(OpId::kAdd, {c.Emit(OpId::kRelu, {scaled}), Log1pOfExp(c, scaled)});
  if (beta != 1) y = WithNumber(c, OpId::kDiv, y, beta);
  const double epsilon = c.type(x).dtype == DType::kF64 ? 0x1p-53 : 0x1p-24;
  if (std::exp(-threshold) <= threshold * epsilon) return y;
  return c.Emit(OpId::kWhere, {WithNumber(c, OpId::kGt, scaled, threshold), x, y});
}

// where(beta x > threshold, x, log1p(exp(beta x)) / beta), the softplus of run_decompositions: it overflows in f16, and XNNPACK has no `where`.
ValueId DecomposedSoftplus(Call& c, ValueId condition, ValueId x, ValueId y) {
  const auto operand = [&](ValueId v, OpId op, size_t i) {
    const Node* n = c.Producer(v);
    return n && n->op == op ? n->operands[i] : kNone;
  };
  const ValueId scaled = operand(condition, OpId::kGt, 0);
  const auto threshold = NumberOf(c, operand(condition, OpId::kGt, 1));
  if (!threshold || !IsFloat(c.type(x).dtype)) return kNone;
  double beta = 1;
  if (scaled != x) {
    const auto factor = NumberOf(c, operand(scaled, OpId::kMul, 1)), divisor = NumberOf(c, operand(y, OpId::kDiv, 1));
    if (operand(scaled, OpId::kMul, 0) != x || !factor || factor != divisor) return kNone;
    beta = *factor;
    y = operand(y, OpId::kDiv, 0);
  }
  if (operand(operand(y, OpId::kLog1p, 0), OpId::kExp, 0) != scaled) return kNone;
  return SoftplusOf(c, x, scaled, beta, *threshold);
}

// where(condition, a, b), each a tensor or a number.
void Where(Call& c) {
  const ValueId condition = c.Tensor("condition");
  const bool a_tensor = c.IsTensor("self"), b_tensor = c.IsTensor("other");
  ValueId a = a_tensor ? c.Tensor("self") : kNone, b = b_tensor ? c.Tensor("other") : kNone;
  const Attr x = a_tensor ? Attr() : c.Scalar("self"), y = b_tensor ? Attr() : c.Scalar("other");
  DType dtype = a_tensor && b_tensor ? PromoteOperands(c.type(a), c.type(b)) : PromoteScalar(c.type(a_tensor ? a : b).dtype, a_tensor ? y : x);
  if (!a_tensor && !b_tensor) dtype = PromoteScalar(PromoteScalar(DType::kBool, x), y);
  a = a_tensor ? c.Convert(a, dtype) : c.ScalarTensor(x, dtype);
  b = b_tensor ? c.Convert(b, dtype) : c.ScalarTensor(y, dtype);
  const ValueId softplus = c.ok() ? DecomposedSoftplus(c, condition, a, b) : kNone;
  c.Return(softplus != kNone ? softplus : c.Emit(OpId::kWhere, {condition, a, b}));
}

void MaskedFill(Call& c) {
  const ValueId self = c.Tensor("self"), mask = c.Tensor("mask");
  const DType dtype = c.type(self).dtype;
  const ValueId value = c.IsTensor("value") ? c.Convert(c.Tensor("value"), dtype) : c.ScalarTensor(c.Scalar("value"), dtype);
  c.Return(c.Emit(OpId::kWhere, {mask, value, self}));
}

void ClampOneSide(Call& c, std::string_view side) {
  c.Return(c.Emit(OpId::kClamp, {c.Tensor("self")}, {{side, c.Scalar(side)}}));
}
void ClampTensor(Call& c) {
  ValueId v = c.Tensor("self");
  if (c.Has("min")) v = c.Binary(OpId::kMaximum, v, c.Tensor("min"));
  if (c.Has("max")) v = c.Binary(OpId::kMinimum, v, c.Tensor("max"));
  c.Return(v);
}

// relu6(x + 3), the core of hardswish and hardsigmoid.
ValueId ShiftedRelu6(Call& c, ValueId x) {
  return c.Emit(OpId::kHardtanh, {WithNumber(c, OpId::kAdd, x, 3)}, {{"min_val", 0.0}, {"max_val", 6.0}});
}
void Hardsigmoid(Call& c) { c.Return(WithNumber(c, OpId::kDiv, ShiftedRelu6(c, c.Tensor("self")), 6)); }
void Hardswish(Call& c) {
  const ValueId x = c.Tensor("self");
  c.Return(WithNumber(c, OpId::kDiv, c.Binary(OpId::kMul, x, ShiftedRelu6(c, x)), 6));
}
void Relu6(Call& c) { c.Return(c.Emit(OpId::kHardtanh, {c.Tensor("self")}, {{"min_val", 0.0}, {"max_val", 6.0}})); }

// x where x > 0, else `negative`.
ValueId Rectified(Call& c, ValueId x, ValueId negative) { return c.Emit(OpId::kWhere, {WithNumber(c, OpId::kGt, x, 0), x, negative}); }
void LeakyRelu(Call& c) {
  const ValueId x = c.Tensor("self");
  c.Return(Rectified(c, x, WithNumber(c, OpId::kMul, x, c.Float("negative_slope", 0.01))));
}
void Elu(Call& c) {
  const ValueId x = c.Tensor("self");
  if (c.Float("scale", 1) != 1 || c.Float("input_scale", 1) != 1) return c.Fail(Unsupported("elu with a scale"));
  const ValueId minus_one = WithNumber(c, OpId::kSub, c.Emit(OpId::kExp, {x}), 1);
  c.Return(Rectified(c, x, WithNumber(c, OpId::kMul, minus_one, c.Float("alpha", 1))));
}
void Softplus(Call& c) {
  const ValueId self = c.Tensor("self"), x = Widened(c, self);
  const double beta = c.Float("beta", 1);
  const ValueId scaled = beta == 1 ? x : WithNumber(c, OpId::kMul, x, beta);
  c.Return(c.Convert(SoftplusOf(c, x, scaled, beta, c.Float("threshold", 20)), c.type(self).dtype));
}
void Mish(Call& c) {
  const ValueId self = c.Tensor("self"), x = Widened(c, self);
  c.Return(c.Convert(c.Emit(OpId::kMul, {x, c.Emit(OpId::kTanh, {SoftplusOf(c, x, x, 1, 20)})}), c.type(self).dtype));
}
// min(x, 0) - log(1 + exp(-|x|))
void LogSigmoid(Call& c) {
  const ValueId self = c.Tensor("self"), x = Widened(c, self);
  const ValueId y = c.Emit(OpId::kSub, {c.Emit(OpId::kClamp, {x}, {{"max", 0.0}}), Log1pOfExp(c, x)});
  c.Return(c.Convert(y, c.type(self).dtype));
}

void Prelu(Call& c) {
  const ValueId x = c.Tensor("self");
  ValueId w = c.Tensor("weight");
  std::vector<Dim> sizes(c.shape(x).rank(), 1);
  if (c.shape(w).numel() != Dim(1) && sizes.size() > 1) sizes[1] = c.shape(w).numel();
  w = c.Reshape(w, std::move(sizes));
  c.Return(Rectified(c, x, c.Binary(OpId::kMul, x, w)));
}
void Glu(Call& c) {
  const ValueId x = c.Tensor("self");
  const size_t axis = c.Axis(c.Int("dim", -1), c.shape(x).rank());
  if (!c.ok() || c.shape(x).empty()) return c.Fail(InvalidArgument("glu of a tensor of rank 0"));
  const auto half = Dim::DivideExact(c.shape(x)[axis], 2);
  if (!half) return c.Fail(InvalidArgument("glu over an odd size"));
  const int64_t dim = static_cast<int64_t>(axis);
  const ValueId a = c.Emit(OpId::kSlice, {x}, {{"dim", dim}, {"start", 0}, {"end", *half}});
  const ValueId b = c.Emit(OpId::kSlice, {x}, {{"dim", dim}, {"start", *half}, {"end", *half + *half}});
  c.Return(c.Binary(OpId::kMul, a, c.Emit(OpId::kSigmoid, {b})));
}

// round(x * 10^decimals) / 10^decimals
void RoundDecimals(Call& c) {
  const ValueId x = c.Tensor("self");
  const int64_t decimals = c.Int("decimals");
  if (decimals == 0 || !IsFloat(c.type(x).dtype)) return c.Return(c.Emit(OpId::kRound, {x}));
  const double power = std::pow(10.0, std::abs(static_cast<double>(decimals)));
  const ValueId scaled = c.Emit(OpId::kRound, {WithNumber(c, decimals > 0 ? OpId::kMul : OpId::kDiv, x, power)});
  c.Return(WithNumber(c, decimals > 0 ? OpId::kDiv : OpId::kMul, scaled, power));
}
// From the nearer end, so that a weight of 0 or 1 gives that end.
void LerpScalar(Call& c) {
  const ValueId self = c.Tensor("self"), end = c.Tensor("end");
  const double weight = c.Scalar("weight").Number();
  const ValueId way = c.Binary(OpId::kSub, end, self);
  if (!c.ok()) return;
  if (std::abs(weight) < 0.5) return c.Return(c.Binary(OpId::kAdd, self, WithNumber(c, OpId::kMul, way, weight)));
  c.Return(c.Binary(OpId::kSub, end, WithNumber(c, OpId::kMul, way, 1 - weight)));
}
void LerpTensor(Call& c) {
  const ValueId self = c.Tensor("self"), end = c.Tensor("end"), weight = c.Tensor("weight");
  if (!c.ok()) return;
  const ValueId rest = c.Emit(OpId::kSub, {c.ScalarTensor(1.0, c.type(weight).dtype), weight});
  c.Return(c.Binary(OpId::kAdd, c.Binary(OpId::kMul, self, rest), c.Binary(OpId::kMul, end, weight)));
}

void Square(Call& c) {
  const ValueId x = c.Tensor("self");
  c.Return(c.Emit(OpId::kMul, {x, x}));
}
void IsNan(Call& c) {
  const ValueId x = c.Tensor("self");
  c.Return(c.Emit(OpId::kNe, {x, x}));
}
void IsInf(Call& c) { c.Return(WithNumber(c, OpId::kEq, c.Emit(OpId::kAbs, {c.Tensor("self")}), std::numeric_limits<double>::infinity())); }
void BitwiseNot(Call& c) {
  const ValueId x = c.Tensor("self");
  if (c.type(x).dtype != DType::kBool) return c.Fail(Unsupported("bits of integers; only a bool operand"));
  c.Return(c.Emit(OpId::kLogicalNot, {x}));
}
void Abs(Call& c) {
  const TensorId t = c.Handle("self");
  const ValueId x = c.Read(t);
  if (!c.is_complex(t)) return c.Return(c.Emit(OpId::kAbs, {x}));
  const ValueId square = c.Emit(OpId::kMul, {x, x});
  c.Return(c.Emit(OpId::kSqrt, {c.Emit(OpId::kSum, {square}, {{"dim", Attr::Ints({-1})}})}));
}
void Polar(Call& c) {
  const ValueId r = c.Tensor("abs"), angle = c.Tensor("angle");
  const ValueId real = c.Binary(OpId::kMul, r, c.Emit(OpId::kCos, {angle})), imag = c.Binary(OpId::kMul, r, c.Emit(OpId::kSin, {angle}));
  c.Return(Join(c, WithLastOne(c, real), WithLastOne(c, imag)), true);
}
void Complex(Call& c) { c.Return(Join(c, WithLastOne(c, c.Tensor("real")), WithLastOne(c, c.Tensor("imag"))), true); }

constexpr Rule kRules[] = {
    {"aten.add.Tensor", Apply<OpId::kAdd>},
    {"aten.add.Scalar", Apply<OpId::kAdd>},
    {"aten.sub.Tensor", Apply<OpId::kSub>},
    {"aten.sub.Scalar", Apply<OpId::kSub>},
    {"aten.subtract.Tensor", Apply<OpId::kSub>},
    {"aten.rsub.Scalar", Rsub},
    {"aten.rsub.Tensor", Rsub},
    {"aten.mul.Tensor", Apply<OpId::kMul>},
    {"aten.mul.Scalar", Apply<OpId::kMul>},
    {"aten.multiply.Tensor", Apply<OpId::kMul>},
    {"aten.div.Tensor", Apply<OpId::kDiv, Mode::kTrueDivision>},
    {"aten.div.Scalar", Apply<OpId::kDiv, Mode::kTrueDivision>},
    {"aten.divide.Tensor", Apply<OpId::kDiv, Mode::kTrueDivision>},
    {"aten.true_divide.Tensor", Apply<OpId::kDiv, Mode::kTrueDivision>},
    {"aten.div.Tensor_mode", DivMode},
    {"aten.div.Scalar_mode", DivMode},
    {"aten.floor_divide.default", Apply<OpId::kFloorDivide>},
    {"aten.floor_divide.Scalar", Apply<OpId::kFloorDivide>},
    {"aten.remainder.Tensor", Apply<OpId::kRemainder>},
    {"aten.remainder.Scalar", Apply<OpId::kRemainder>},
    {"aten.remainder.Scalar_Tensor", Apply<OpId::kRemainder>},
    {"aten.fmod.Tensor", Apply<OpId::kRemainder, Mode::kTruncated>},
    {"aten.fmod.Scalar", Apply<OpId::kRemainder, Mode::kTruncated>},
    {"aten.pow.Tensor_Tensor", Power},
    {"aten.pow.Scalar", Power},
    {"aten.maximum.default", Extremum<OpId::kMaximum>},
    {"aten.minimum.default", Extremum<OpId::kMinimum>},
    {"aten.max.other", Extremum<OpId::kMaximum>},
    {"aten.min.other", Extremum<OpId::kMinimum>},
    {"aten.eq.Tensor", Apply<OpId::kEq>},
    {"aten.eq.Scalar", Apply<OpId::kEq>},
    {"aten.ne.Tensor", Apply<OpId::kNe>},
    {"aten.ne.Scalar", Apply<OpId::kNe>},
    {"aten.lt.Tensor", Apply<OpId::kLt>},
    {"aten.lt.Scalar", Apply<OpId::kLt>},
    {"aten.le.Tensor", Apply<OpId::kLe>},
    {"aten.le.Scalar", Apply<OpId::kLe>},
    {"aten.gt.Tensor", Apply<OpId::kGt>},
    {"aten.gt.Scalar", Apply<OpId::kGt>},
    {"aten.ge.Tensor", Apply<OpId::kGe>},
    {"aten.ge.Scalar", Apply<OpId::kGe>},
    {"aten.logical_and.default", Apply<OpId::kLogicalAnd, Mode::kBool>},
    {"aten.logical_or.default", Apply<OpId::kLogicalOr, Mode::kBool>},
    {"aten.logical_xor.default", Apply<OpId::kNe, Mode::kBool>},
    {"aten.bitwise_and.Tensor", Bitwise<OpId::kLogicalAnd>},
    {"aten.bitwise_or.Tensor", Bitwise<OpId::kLogicalOr>},
    {"aten.bitwise_xor.Tensor", Bitwise<OpId::kNe>},
    {"aten.__and__.Tensor", Bitwise<OpId::kLogicalAnd>},
    {"aten.__or__.Tensor", Bitwise<OpId::kLogicalOr>},
    {"aten.__xor__.Tensor", Bitwise<OpId::kNe>},
    {"aten.bitwise_not.default", BitwiseNot},
    {"aten.where.self", Where},
    {"aten.where.Scalar", Where},
    {"aten.where.ScalarSelf", Where},
    {"aten.where.ScalarOther", Where},
    {"aten.masked_fill.Scalar", MaskedFill},
    {"aten.masked_fill.Tensor", MaskedFill},
    {"aten.clamp_min.default", [](Call& c) { ClampOneSide(c, "min"); }},
    {"aten.clamp_max.default", [](Call& c) { ClampOneSide(c, "max"); }},
    {"aten.clamp.Tensor", ClampTensor},
    {"aten.abs.default", Abs},
    {"aten.round.decimals", RoundDecimals},
    {"aten.lerp.Scalar", LerpScalar},
    {"aten.lerp.Tensor", LerpTensor},
    {"aten.square.default", Square},
    {"aten.isnan.default", IsNan},
    {"aten.isinf.default", IsInf},
    {"aten.relu6.default", Relu6},
    {"aten.hardsigmoid.default", Hardsigmoid},
    {"aten.hardswish.default", Hardswish},
    {"aten.leaky_relu.default", LeakyRelu},
    {"aten.elu.default", Elu},
    {"aten.softplus.default", Softplus},
    {"aten.mish.default", Mish},
    {"aten.log_sigmoid.default", LogSigmoid},
    {"aten.log_sigmoid_forward.default", LogSigmoid},
    {"aten.prelu.default", Prelu},
    {"aten._prelu_kernel.default", Prelu},
    {"aten.glu.default", Glu},
    {"aten.polar.default", Polar},
    {"aten.complex.default", Complex},
};

}  // namespace

const std::span<const Rule> kElementwiseRules = kRules;

}  // namespace dovetail::pt2
