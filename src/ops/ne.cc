#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapCompare(ctx, [](auto a, auto b) { return a != b; });
}
}  // namespace

constinit const OpDef kOpNe = {
    "ne", "ne(Tensor self, Tensor other) -> Tensor",
    "aten.ne.Tensor aten.not_equal.Tensor", "aten::ne.Tensor_out",
    kElementwise | kCommutative, InferCompare, Reference};

}  // namespace dovetail
