// What the operators' inference functions share. Nothing here allocates while all dims are constants and all is well.
#pragma once

#include <optional>
#include <span>

#include "ops/op_def.h"

namespace dovetail {

// Type of result i, without quantization.
Status SetResult(const InferContext& ctx, size_t i, DType dtype, const Shape& shape);
// Result 0 of an operator that moves the elements of operand 0: per-tensor quantization stays.
Status SetMovedResult(const InferContext& ctx, const Shape& shape);

// PyTorch's dtype for two operands computed together: a rank-0 one counts only if its category (bool < integer < float) is higher.
DType PromoteOperands(const TensorType& a, const TensorType& b);
// The same for a tensor with a Scalar argument, whose category counts, not its width; None changes nothing.
DType PromoteScalar(DType tensor, const Attr& scalar);

// `what` begins the message: "softmax".
Status RequireFloat(const TensorType& t, std::string_view what);
Status RequireRank(const TensorType& t, size_t min, size_t max, std::string_view what);
// Refuses what is not i32 or i64.
Status RequireIndex(const TensorType& t, std::string_view what);

// [rows, columns] of the weight of quantized_linear and its like: i8[N,K] with scales f32[N], or u8[N,K/2] with scales bf16[N,K/block].
Result<Shape> QuantizedMatrixShape(const TensorType& weight, const TensorType& scale);

// A shape from a size argument: at most kMaxRank dims, constants not below zero.
Result<Shape> ShapeFromSizes(std::span<const Dim> sizes, std::string_view what);
// The attr of an int[] as dims; a Dim stands for a list of one.
std::span<const Dim> DimsOf(const Attr& attr);
// A shape as the value of an int[].
std::vector<Dim> DimsOf(const Shape& shape);

// Smallest integer not below a/b, b > 0.
Dim CeilDiv(Dim a, Dim b);

// start:end:step over a dimension with Python's rules. With symbolic values, where it cannot be told, torch.export's guarantee is
// taken: 0 <= start <= end <= dim; a bound whose known maximum is not above zero counts from the end.
struct SliceRange {
  Dim start, length;
  int64_t step = 1;
};
Result<SliceRange> ResolveSlice(Dim dim, const Attr& start, const Attr& end, const Attr& step);

// Inference functions that serve several operators as they are.
Status InferSame(const InferContext& ctx);          // type of operand 0; not bool
Status InferFloatUnary(const InferContext& ctx);    // shape of operand 0; integers and bool give f32
Status InferFloatOnly(const InferContext& ctx);     // type of operand 0, which must be float
Status InferBinary(const InferContext& ctx);        // broadcast, promoted
Status InferBinaryNoBool(const InferContext& ctx);  // the same; bool refused
Status InferCompare(const InferContext& ctx);       // broadcast, bool

}  // namespace dovetail
