#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapCompare(ctx, [](auto a, auto b) { return a >= b; });
}
}  // namespace

constinit const OpDef kOpGe = {
    "ge", "ge(Tensor self, Tensor other) -> Tensor",
    "aten.ge.Tensor aten.greater_equal.Tensor", "aten::ge.Tensor_out",
    kElementwise, InferCompare, Reference};

}  // namespace dovetail
