#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapFloat(ctx, [](auto x) { return std::cos(x); });
}
}  // namespace

constinit const OpDef kOpCos = {
    "cos", "cos(Tensor self) -> Tensor",
    "aten.cos.default", "aten::cos.out",
    kElementwise, InferFloatUnary, Reference};

}  // namespace dovetail
