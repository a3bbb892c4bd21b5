#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Infer(const InferContext& ctx) {
  const DType dtype = PromoteScalar(ctx.operand(0).dtype, ctx.attr(0));
  if (dtype == DType::kBool) return InvalidArgument("pow is not defined for bool");
  if (!IsFloat(dtype) && ctx.attr(0).Int(0) < 0) return InvalidArgument("pow: an integer to a negative power; convert to floating point first");
  return SetResult(ctx, 0, dtype, ctx.operand(0).shape);
}

Status Reference(const KernelContext& ctx) {
  return DispatchNumber(ctx.out().dtype, [&]<class T>() {
    const auto exponent = ScalarAs<T>(ctx.attr(0));
    return MapUnary<T>(ctx, [=](auto x) {
      if constexpr (std::is_integral_v<decltype(x)>) return IntegerPower(x, ctx.attr(0).Int(1));
      else return std::pow(x, exponent);
    });
  });
}
}  // namespace

constinit const OpDef kOpPowTensorScalar = {
    "pow", "pow(Tensor self, Scalar exponent) -> Tensor",
    "aten.pow.Tensor_Scalar", "aten::pow.Tensor_Scalar_out",
    kElementwise, Infer, Reference};

}  // namespace dovetail
