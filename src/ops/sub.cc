#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return DispatchNumber(ctx.out().dtype, [&]<class T>() {
    const auto alpha = ScalarAs<T>(ctx.attr(0), 1);
    return MapBinaryAs<T, T>(ctx, [=](auto a, auto b) { return WrappingSub(a, WrappingMul(alpha, b)); });
  });
}
}  // namespace

constinit const OpDef kOpSub = {
    "sub", "sub(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "aten.sub.Tensor aten.subtract.Tensor", "aten::sub.out",
    kElementwise, InferBinaryNoBool, Reference};

}  // namespace dovetail
