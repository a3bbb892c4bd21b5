#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapFloat(ctx, [](auto x) { return 1 / std::sqrt(x); });
}
}  // namespace

constinit const OpDef kOpRsqrt = {
    "rsqrt", "rsqrt(Tensor self) -> Tensor",
    "aten.rsqrt.default", "aten::rsqrt.out",
    kElementwise, InferFloatUnary, Reference};

}  // namespace dovetail
