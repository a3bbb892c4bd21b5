#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapFloat(ctx, [](auto x) { return 1 / x; });
}
}  // namespace

constinit const OpDef kOpReciprocal = {
    "reciprocal", "reciprocal(Tensor self) -> Tensor",
    "aten.reciprocal.default", "aten::reciprocal.out",
    kElementwise, InferFloatUnary, Reference};

}  // namespace dovetail
