#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapBinary(ctx, [](auto a, auto b) { return MinPropagatingNan(a, b); });
}
}  // namespace

constinit const OpDef kOpMinimum = {
    "minimum", "minimum(Tensor self, Tensor other) -> Tensor",
    "aten.minimum.default", "aten::minimum.out",
    kElementwise | kCommutative, InferBinary, Reference};

}  // namespace dovetail
