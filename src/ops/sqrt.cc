#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapFloat(ctx, [](auto x) { return std::sqrt(x); });
}
}  // namespace

constinit const OpDef kOpSqrt = {
    "sqrt", "sqrt(Tensor self) -> Tensor",
    "aten.sqrt.default", "aten::sqrt.out",
    kElementwise, InferFloatUnary, Reference};

}  // namespace dovetail
