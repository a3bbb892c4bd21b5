#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapCompare(ctx, [](auto a, auto b) { return a < b; });
}
}  // namespace

constinit const OpDef kOpLt = {
    "lt", "lt(Tensor self, Tensor other) -> Tensor",
    "aten.lt.Tensor aten.less.Tensor", "aten::lt.Tensor_out",
    kElementwise, InferCompare, Reference};

}  // namespace dovetail
