// Not marked commutative: alpha scales the second operand.
#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return DispatchElement(ctx.out().dtype, [&]<class T>() {
    const auto alpha = ScalarAs<T>(ctx.attr(0), 1);
    return MapBinaryAs<T, T>(ctx, [=](auto a, auto b) { return WrappingAdd(a, WrappingMul(alpha, b)); });
  });
}
}  // namespace

constinit const OpDef kOpAdd = {
    "add", "add(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor",
    "aten.add.Tensor", "aten::add.out",
    kElementwise, InferBinary, Reference};

}  // namespace dovetail
