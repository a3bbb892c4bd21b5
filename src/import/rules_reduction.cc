// Sums, means, extremes, norms and what is made of them.
#include <cmath>

#include "import/rules.h"

namespace dovetail::pt2 {
namespace {

// The argument "dim": absent or empty means all dimensions.
Attr Dims(Call& c, size_t rank) {
  std::vector<Dim> dims;
  if (c.Has("dim")) dims = c.SymInts("dim");
  if (dims.empty())
    for (size_t i = 0; i < rank; ++i) dims.push_back(static_cast<int64_t>(i));
  return dims;
}

ValueId Reduce(Call& c, OpId op, ValueId x, const Attr& dims, bool keepdim) { return c.Emit(op, {x}, {{"dim", dims}, {"keepdim", keepdim}}); }

template <OpId kOp>
void SumOrMean(Call& c) {
  ValueId x = c.Tensor("self");
  // Sums of integers and bool are i64, as torch's.
  const DType own = c.type(x).dtype;
  const DType dtype = c.Type("dtype", kOp == OpId::kSum && !IsFloat(own) ? DType::kI64 : own);
  x = c.Convert(x, dtype);
  // Narrower integers wrap around at last as they would at each step.
  c.Return(c.Convert(Reduce(c, kOp, x, Dims(c, c.shape(x).rank()), c.Bool("keepdim", false)), dtype));
}

ValueId Extreme(Call& c, bool max, ValueId x, const Attr& dims, bool keepdim) {
  if (max) return Reduce(c, OpId::kAmax, x, dims, keepdim);
  return c.Emit(OpId::kNeg, {Reduce(c, OpId::kAmax, c.Emit(OpId::kNeg, {x}), dims, keepdim)});
}
template <bool kMax>
void ExtremeOf(Call& c) {
  const ValueId x = c.Tensor("self");
  c.Return(Extreme(c, kMax, x, Dims(c, c.shape(x).rank()), c.Bool("keepdim", false)));
}

// The first position along `axis` where x is its extreme, a NaN if there is one: the least of the positions of those.
ValueId PositionOf(Call& c, bool max, ValueId x, size_t axis, bool keepdim) {
  const Attr dims = Attr::Ints({static_cast<int64_t>(axis)});
  ValueId hit = c.Emit(OpId::kEq, {x, Extreme(c, max, x, dims, true)});
  if (IsFloat(c.type(x).dtype)) hit = c.Emit(OpId::kLogicalOr, {hit, c.Emit(OpId::kNe, {x, x})});
  if (!c.ok()) return kNone;
  std::vector<Dim> sizes(c.shape(x).rank() - axis, 1);
  sizes[0] = c.shape(x)[axis];
  const ValueId range = c.Emit(OpId::kArange, {}, {{"start", 0}, {"end", sizes[0]}, {"out_dtype", DType::kI64}});
  const ValueId positions = c.Emit(OpId::kWhere, {hit, c.Reshape(range, sizes), c.ScalarTensor(sizes[0], DType::kI64)});
  return Extreme(c, false, positions, dims, keepdim);
}
template <bool kMax>
void ArgExtreme(Call& c) {
  const ValueId x = c.Tensor("self");
  const bool keepdim = c.Bool("keepdim", false);
  const size_t rank = c.shape(x).rank();
  if (c.Has("dim") && rank > 0) return c.Return(PositionOf(c, kMax, x, c.Axis(c.Int("dim"), rank), keepdim));
  const ValueId position = PositionOf(c, kMax, c.Reshape(x, {c.shape(x).numel()}), 0, false);
  c.Return(c.Reshape(position, std::vector<Dim>(keepdim ? rank : 0, 1)));
}
// Two results: the extremes over one dimension and their positions.
template <bool kMax>
void ExtremeWithPosition(Call& c) {
  const ValueId x = c.Tensor("self");
  const size_t rank = c.shape(x).rank(), axis = c.Axis(c.Int("dim"), rank);
  if (c.ok() && rank == 0) return c.Fail(Unsupported("the largest element of a tensor of rank 0"));
  const bool keepdim = c.Bool("keepdim", false);
  c.Return(Extreme(c, kMax, x, Attr::Ints({static_cast<int64_t>(axis)}), keepdim));
  c.Return(PositionOf(c, kMax, x, axis, keepdim));
}

// Over one dimension, or over all of the flattened tensor.
ValueId Any(Call& c, ValueId x) {
  if (c.Has("dim")) return c.Emit(OpId::kAny, {x}, {{"dim", c.Int("dim")}, {"keepdim", c.Bool("keepdim", false)}});
  return c.Emit(OpId::kAny, {c.Reshape(x, {c.shape(x).numel()})}, {{"dim", 0}});
}
void AnyOf(Call& c) { c.Return(Any(c, c.Tensor("self"))); }
void AllOf(Call& c) { c.Return(c.Emit(OpId::kLogicalNot, {Any(c, c.Emit(OpId::kLogicalNot, {c.Tensor("self")}))})); }

// sum((x - mean)^2) / (n - correction)
ValueId Variance(Call& c) {
  const ValueId x = c.Tensor("self");
  const Attr dims = Dims(c, c.shape(x).rank());
  double correction = c.Has("correction") ? c.Float("correction") : c.Bool("unbiased", true) ? 1 : 0;
  Dim count = 1;
  for (Dim d : dims.Dims()) count = count * c.shape(x)[c.Axis(d.constant().value_or(0), c.shape(x).rank())];
  const ValueId centered = c.Binary(OpId::kSub, x, Reduce(c, OpId::kMean, x, dims, true));
  const ValueId sum = Reduce(c, OpId::kSum, c.Emit(OpId::kMul, {centered, centered}), dims, c.Bool("keepdim", false));
  if (!c.ok()) return kNone;
  const DType dtype = c.type(x).dtype;
  if (count.is_constant()) return c.Emit(OpId::kDiv, {sum, c.ScalarTensor(static_cast<double>(count.value()) - correction, dtype)});
  const ValueId n = c.Emit(OpId::kSub, {c.ScalarTensor(count, dtype), c.ScalarTensor(correction, dtype)});
  return c.Emit(OpId::kDiv, {sum, n});
}
void Var(Call& c) { c.Return(Variance(c)); }
void Std(Call& c) { c.Return(c.Emit(OpId::kSqrt, {Variance(c)})); }

void Softmax(Call& c) {
  const ValueId x = c.Tensor("self");
  c.Return(c.Emit(OpId::kSoftmax, {c.Convert(x, c.Type("dtype", c.type(x).dtype))}, {{"dim", c.Int("dim")}}));
}

// x - max - log(sum(exp(x - max)))
void LogSoftmax(Call& c) {
  ValueId x = c.Tensor("self");
  x = c.Convert(x, c.Type("dtype", c.type(x).dtype));
  const Attr dims = Attr::Ints({c.Int("dim")});
  const ValueId shifted = c.Binary(OpId::kSub, x, Reduce(c, OpId::kAmax, x, dims, true));
  const ValueId sum = Reduce(c, OpId::kSum, c.Emit(OpId::kExp, {shifted}), dims, true);
  c.Return(c.Binary(OpId::kSub, shifted, c.Emit(OpId::kLog, {sum})));
}

// safe + log(sum(exp(x - safe))), `safe` being the maximum where that is finite, else 0.
void LogSumExp(Call& c) {
  ValueId x = c.Tensor("self");
  if (!IsFloat(c.type(x).dtype)) x = c.Convert(x, DType::kF32);
  const Attr dims = Dims(c, c.shape(x).rank());
  const DType dtype = c.type(x).dtype;
  const ValueId most = Reduce(c, OpId::kAmax, x, dims, true);
  const ValueId finite = c.Emit(OpId::kLt, {c.Emit(OpId::kAbs, {most}), c.ScalarTensor(static_cast<double>(INFINITY), dtype)});
  const ValueId safe = c.Emit(OpId::kWhere, {finite, most, c.ScalarTensor(0.0, dtype)});
  const ValueId log = c.Emit(OpId::kLog, {Reduce(c, OpId::kSum, c.Emit(OpId::kExp, {c.Binary(OpId::kSub, x, safe)}), dims, c.Bool("keepdim", false))});
  if (!c.ok()) return;
  c.Return(c.Binary(OpId::kAdd, log, c.Reshape(safe, {c.shape(log).begin(), c.shape(log).end()})));
}

// sum(|x|^order)^(1/order), and its limits.
void Norm(Call& c, double order) {
  ValueId x = c.Tensor("self");
  x = c.Convert(x, c.Type("dtype", c.type(x).dtype));
  if (!c.ok()) return;
  const DType dtype = c.type(x).dtype;
  if (!IsFloat(dtype)) return c.Fail(InvalidArgument("a norm of ", Name(dtype), "; convert it to a float type first"));
  const Attr dims = Dims(c, c.shape(x).rank());
  const bool keepdim = c.Bool("keepdim", false);
  if (order == 2) return c.Return(c.Emit(OpId::kSqrt, {Reduce(c, OpId::kSum, c.Emit(OpId::kMul, {x, x}), dims, keepdim)}));
  if (order == 0) {
    const ValueId used = c.Emit(OpId::kNe, {x, c.ScalarTensor(0.0, dtype)});
    return c.Return(Reduce(c, OpId::kSum, c.Convert(used, dtype), dims, keepdim));
  }
  const ValueId size = c.Emit(OpId::kAbs, {x});
  if (std::isinf(order)) return c.Return(Extreme(c, order > 0, size, dims, keepdim));
  if (order == 1) return c.Return(Reduce(c, OpId::kSum, size, dims, keepdim));
  const ValueId sum = Reduce(c, OpId::kSum, c.Emit(OpId::kPowTensorScalar, {size}, {{"exponent", order}}), dims, keepdim);
  c.Return(c.Emit(OpId::kPowTensorScalar, {sum}, {{"exponent", 1 / order}}));
}
template <char kName>
void NormOf(Call& c) {
  constexpr std::string_view kOrder = kName == 'p' ? "p" : "ord";
  Norm(c, c.Has(kOrder) ? c.Scalar(kOrder).Number() : 2);
}

void Cumsum(Call& c) {
  const ValueId x = c.Tensor("self");
  const DType own = c.type(x).dtype, dtype = c.Type("dtype", IsFloat(own) ? own : DType::kI64);
  // Narrower integers wrap around at last as they would at each step.
  c.Return(c.Convert(c.Emit(OpId::kCumsum, {c.Convert(x, IsFloat(dtype) ? dtype : DType::kI64)}, {{"dim", c.Int("dim")}}), dtype));
}

constexpr Rule kRules[] = {
    {"aten.sum.default", SumOrMean<OpId::kSum>},
    {"aten.sum.dim_IntList", SumOrMean<OpId::kSum>},
    {"aten.mean.default", SumOrMean<OpId::kMean>},
    {"aten.mean.dim", SumOrMean<OpId::kMean>},
    {"aten.amax.default", ExtremeOf<true>},
    {"aten.max.default", ExtremeOf<true>},
    {"aten.max.dim", ExtremeWithPosition<true>},
    {"aten.argmax.default", ArgExtreme<true>},
    {"aten.amin.default", ExtremeOf<false>},
    {"aten.min.default", ExtremeOf<false>},
    {"aten.min.dim", ExtremeWithPosition<false>},
    {"aten.argmin.default", ArgExtreme<false>},
    {"aten.any.default", AnyOf},
    {"aten.any.dim", AnyOf},
    {"aten.all.default", AllOf},
    {"aten.all.dim", AllOf},
    {"aten.var.correction", Var},
    {"aten.var.dim", Var},
    {"aten.var.default", Var},
    {"aten.std.correction", Std},
    {"aten.std.dim", Std},
    {"aten.std.default", Std},
    {"aten.softmax.int", Softmax},
    {"aten.log_softmax.int", LogSoftmax},
    {"aten._log_softmax.default", LogSoftmax},
    {"aten.logsumexp.default", LogSumExp},
    {"aten.linalg_vector_norm.default", NormOf<'o'>},
    {"aten.norm.Scalar", NormOf<'p'>},
    {"aten.norm.ScalarOpt_dim", NormOf<'p'>},
    {"aten.norm.ScalarOpt_dtype", NormOf<'p'>},
    {"aten.norm.ScalarOpt_dim_dtype", NormOf<'p'>},
    {"aten.cumsum.default", Cumsum},
};

}  // namespace

const std::span<const Rule> kReductionRules = kRules;

}  // namespace dovetail::pt2
