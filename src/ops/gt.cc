#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapCompare(ctx, [](auto a, auto b) { return a > b; });
}
}  // namespace

constinit const OpDef kOpGt = {
    "gt", "gt(Tensor self, Tensor other) -> Tensor",
    "aten.gt.Tensor aten.greater.Tensor", "aten::gt.Tensor_out",
    kElementwise, InferCompare, Reference};

}  // namespace dovetail
