#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapCompare(ctx, [](auto a, auto b) { return a <= b; });
}
}  // namespace

constinit const OpDef kOpLe = {
    "le", "le(Tensor self, Tensor other) -> Tensor",
    "aten.le.Tensor aten.less_equal.Tensor", "aten::le.Tensor_out",
    kElementwise, InferCompare, Reference};

}  // namespace dovetail
