#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapFloat(ctx, [](auto x) { return std::sin(x); });
}
}  // namespace

constinit const OpDef kOpSin = {
    "sin", "sin(Tensor self) -> Tensor",
    "aten.sin.default", "aten::sin.out",
    kElementwise, InferFloatUnary, Reference};

}  // namespace dovetail
