// Floats become integers by truncation, everything but zero becomes true. A float that an integer type cannot hold: see Convert.
#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Infer(const InferContext& ctx) {
  const DType to = ctx.attr(2).Type(), from = ctx.operand(0).dtype;
  if (to == DType::kNone) return InvalidArgument("to_dtype: no element type to convert to is given");
  if (IsComplex(to) || IsComplex(from)) return Unsupported("to_dtype: no conversion from ", Name(from), " to ", Name(to));
  return SetResult(ctx, 0, to, ctx.operand(0).shape);
}

Status Reference(const KernelContext& ctx) {
  return DispatchConvertible(ctx.out().dtype, [&]<class T>() { return MapUnary<T>(ctx, [](auto x) { return x; }); });
}
}  // namespace

constinit const OpDef kOpToDtype = {
    "to_dtype", "to_dtype(Tensor self, *, bool non_blocking=False, MemoryFormat? memory_format=None, ScalarType out_dtype) -> Tensor",
    "", "aten::_to_copy.out",
    kElementwise, Infer, Reference};

}  // namespace dovetail
