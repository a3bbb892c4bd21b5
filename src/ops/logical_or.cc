#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapBinaryAs<BoolElement, BoolElement>(ctx, [](bool a, bool b) { return a || b; });
}
}  // namespace

constinit const OpDef kOpLogicalOr = {
    "logical_or", "logical_or(Tensor self, Tensor other) -> Tensor",
    "aten.logical_or.default", "aten::logical_or.out",
    kElementwise | kCommutative, InferCompare, Reference};

}  // namespace dovetail
