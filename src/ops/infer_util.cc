#include "ops/infer_util.h"

namespace dovetail {
namespace {

int Category(DType t) { return t == DType::kBool ? 0 : IsFloat(t) ? 2 : IsComplex(t) ? 3 : 1; }

DType Combine(DType higher, DType lower) {
  if (higher == DType::kNone) return lower;
  if (lower == DType::kNone || Category(lower) <= Category(higher)) return higher;
  return Promote(higher, lower);
}

// A slice bound as a position in [0, dim].
Dim ResolveBound(Dim bound, Dim dim) {
  const bool negative = bound.is_constant() ? bound.value() < 0 : bound.Bounds({}).max <= 0;
  if (negative) bound = bound + dim;
  if (bound.is_constant() && bound.value() <= 0) return 0;
  if (bound == Dim(INT64_MAX)) return dim;
  const Dim beyond = bound - dim;
  return beyond.is_constant() && beyond.value() >= 0 ? dim : bound;
}

}  // namespace

Status SetResult(const InferContext& ctx, size_t i, DType dtype, const Shape& shape) {
  ctx.results[i] = TensorType(dtype, shape);
  return OkStatus();
}

Status SetMovedResult(const InferContext& ctx, const Shape& shape) {
  const TensorType& self = ctx.operand(0);
  ctx.results[0] = TensorType(self.dtype, shape);
  if (self.quant.kind == QuantParams::Kind::kPerTensor) ctx.results[0].quant = self.quant;
  return OkStatus();
}

DType PromoteOperands(const TensorType& a, const TensorType& b) {
  if ((a.rank() == 0) == (b.rank() == 0)) return Promote(a.dtype, b.dtype);
  return a.rank() == 0 ? Combine(b.dtype, a.dtype) : Combine(a.dtype, b.dtype);
}

DType PromoteScalar(DType tensor, const Attr& scalar) {
  if (scalar.is<double>()) return Combine(tensor, DType::kF32);
  if (scalar.is<Dim>()) return Combine(tensor, DType::kI64);
  return tensor;
}

Status RequireFloat(const TensorType& t, std::string_view what) {
  if (IsFloat(t.dtype)) return OkStatus();
  return InvalidArgument(what, " takes floating point, not ", Name(t.dtype));
}

Status RequireRank(const TensorType& t, size_t min, size_t max, std::string_view what) {
  if (t.rank() >= min && t.rank() <= max) return OkStatus();
  if (min == max) return InvalidArgument(what, " takes a tensor of rank ", min, ", not [", t.shape.ToString(), "]");
  return InvalidArgument(what, " takes a tensor of rank ", min, " to ", max, ", not [", t.shape.ToString(), "]");
}

Status RequireIndex(const TensorType& t, std::string_view what) {
  if (t.dtype == DType::kI64 || t.dtype == DType::kI32) return OkStatus();
  return InvalidArgument(what, " takes indices of type i32 or i64, not ", Name(t.dtype));
}

Result<Shape> QuantizedMatrixShape(const TensorType& weight, const TensorType& scale) {
  const auto refused = [&] { return InvalidArgument("a quantized weight ", weight.ToString(), " with scales ", scale.ToString()); };
  if (weight.rank() != 2 || !weight.shape.is_constant() || !scale.shape.is_constant()) return refused();
  if (weight.dtype == DType::kI8) {
    if (scale.dtype != DType::kF32 || !(scale.shape == Shape{weight.shape[0]})) return refused();
    return weight.shape;
  }
  const int64_t columns = weight.shape[1].value() * 2;
  if (weight.dtype != DType::kU8 || scale.dtype != DType::kBF16 || scale.rank() != 2 || scale.shape[0] != weight.shape[0]) return refused();
  const int64_t blocks = scale.shape[1].value();
  if (columns == 0 ? blocks != 0 : blocks < 1 || columns % blocks != 0) return refused();
  return Shape{weight.shape[0], Dim(columns)};
}

Result<Shape> ShapeFromSizes(std::span<const Dim> sizes, std::string_view what) {
  if (sizes.size() > kMaxRank) return Unsupported(what, " of rank ", sizes.size(), "; at most ", kMaxRank, " dimensions are supported");
  for (Dim d : sizes)
    if (d.is_constant() && d.value() < 0) return InvalidArgument(what, ": negative size ", d.value());
  return Shape(sizes);
}

std::vector<Dim> DimsOf(const Shape& shape) { return {shape.begin(), shape.end()}; }

std::span<const Dim> DimsOf(const Attr& attr) {
  if (const Dim* d = attr.get<Dim>()) return {d, 1};
  return attr.Dims();
}

Dim CeilDiv(Dim a, Dim b) {
  if (auto exact = Dim::DivideExact(a, b)) return *exact;
  return Dim::FloorDiv(a + b - Dim(1), b);
}

Result<SliceRange> ResolveSlice(Dim dim, const Attr& start, const Attr& end, const Attr& step) {
  const Dim stride = step.SymInt(1);
  if (!stride.is_constant() || stride.value() <= 0) return InvalidArgument("slice: step ", stride.ToString(), " is not a positive number");
  SliceRange range;
  range.step = stride.value();
  range.start = ResolveBound(start.SymInt(0), dim);
  Dim extent = ResolveBound(end.SymInt(INT64_MAX), dim) - range.start;
  if (extent.is_constant() && extent.value() < 0) extent = 0;
  // A constant is divided such that a huge step cannot overflow, a symbolic one as exports write it: equal sizes must compare equal.
  if (!extent.is_constant()) range.length = CeilDiv(extent, stride);
  else range.length = extent.value() == 0 ? 0 : (extent.value() - 1) / range.step + 1;
  return range;
}

Status InferSame(const InferContext& ctx) {
  const TensorType& self = ctx.operand(0);
  if (self.dtype == DType::kBool) return InvalidArgument("the operator is not defined for bool; convert to an integer type first");
  return SetResult(ctx, 0, self.dtype, self.shape);
}

Status InferFloatUnary(const InferContext& ctx) {
  const TensorType& self = ctx.operand(0);
  return SetResult(ctx, 0, IsFloat(self.dtype) ? self.dtype : DType::kF32, self.shape);
}

Status InferFloatOnly(const InferContext& ctx) {
  DT_RETURN_IF_ERROR(RequireFloat(ctx.operand(0), "the operator"));
  return SetResult(ctx, 0, ctx.operand(0).dtype, ctx.operand(0).shape);
}

Status InferBinary(const InferContext& ctx) {
  DT_ASSIGN_OR_RETURN(const Shape shape, Broadcast(ctx.operand(0).shape, ctx.operand(1).shape));
  return SetResult(ctx, 0, PromoteOperands(ctx.operand(0), ctx.operand(1)), shape);
}

Status InferBinaryNoBool(const InferContext& ctx) {
  if (PromoteOperands(ctx.operand(0), ctx.operand(1)) == DType::kBool)
    return InvalidArgument("the operator is not defined for bool; use a logical operator");
  return InferBinary(ctx);
}

Status InferCompare(const InferContext& ctx) {
  DT_ASSIGN_OR_RETURN(const Shape shape, Broadcast(ctx.operand(0).shape, ctx.operand(1).shape));
  return SetResult(ctx, 0, DType::kBool, shape);
}

}  // namespace dovetail
