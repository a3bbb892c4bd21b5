#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapFloat(ctx, [](auto x) { return std::tanh(x); });
}
}  // namespace

constinit const OpDef kOpTanh = {
    "tanh", "tanh(Tensor self) -> Tensor",
    "aten.tanh.default", "aten::tanh.out",
    kElementwise, InferFloatUnary, Reference};

}  // namespace dovetail
