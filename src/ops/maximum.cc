#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapBinary(ctx, [](auto a, auto b) { return MaxPropagatingNan(a, b); });
}
}  // namespace

constinit const OpDef kOpMaximum = {
    "maximum", "maximum(Tensor self, Tensor other) -> Tensor",
    "aten.maximum.default", "aten::maximum.out",
    kElementwise | kCommutative, InferBinary, Reference};

}  // namespace dovetail
