#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapNumber(ctx, [](auto x) { return MaxPropagatingNan(x, decltype(x)(0)); });
}
}  // namespace

constinit const OpDef kOpRelu = {
    "relu", "relu(Tensor self) -> Tensor",
    "aten.relu.default", "aten::relu.out",
    kElementwise, InferSame, Reference};

}  // namespace dovetail
