#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapBinaryAs<BoolElement, BoolElement>(ctx, [](bool a, bool b) { return a && b; });
}
}  // namespace

constinit const OpDef kOpLogicalAnd = {
    "logical_and", "logical_and(Tensor self, Tensor other) -> Tensor",
    "aten.logical_and.default", "aten::logical_and.out",
    kElementwise | kCommutative, InferCompare, Reference};

}  // namespace dovetail
