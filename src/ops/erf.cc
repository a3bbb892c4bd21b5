#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapFloat(ctx, [](auto x) { return std::erf(x); });
}
}  // namespace

constinit const OpDef kOpErf = {
    "erf", "erf(Tensor self) -> Tensor",
    "aten.erf.default aten.special_erf.default", "aten::erf.out",
    kElementwise, InferFloatUnary, Reference};

}  // namespace dovetail
