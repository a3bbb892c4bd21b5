// The most negative integer is its own negative; a product, unlike a difference, turns 0.0 into -0.0.
#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapNumber(ctx, [](auto x) { return WrappingMul(x, static_cast<decltype(x)>(-1)); });
}
}  // namespace

constinit const OpDef kOpNeg = {
    "neg", "neg(Tensor self) -> Tensor",
    "aten.neg.default aten.negative.default", "aten::neg.out",
    kElementwise, InferSame, Reference};

}  // namespace dovetail
