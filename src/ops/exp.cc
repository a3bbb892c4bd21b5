#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapFloat(ctx, [](auto x) { return std::exp(x); });
}
}  // namespace

constinit const OpDef kOpExp = {
    "exp", "exp(Tensor self) -> Tensor",
    "aten.exp.default", "aten::exp.out",
    kElementwise, InferFloatUnary, Reference};

}  // namespace dovetail
