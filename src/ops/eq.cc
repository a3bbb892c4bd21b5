#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapCompare(ctx, [](auto a, auto b) { return a == b; });
}
}  // namespace

constinit const OpDef kOpEq = {
    "eq", "eq(Tensor self, Tensor other) -> Tensor",
    "aten.eq.Tensor", "aten::eq.Tensor_out",
    kElementwise | kCommutative, InferCompare, Reference};

}  // namespace dovetail
