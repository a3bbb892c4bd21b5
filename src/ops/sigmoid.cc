#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapFloat(ctx, [](auto x) { return 1 / (1 + std::exp(-x)); });
}
}  // namespace

constinit const OpDef kOpSigmoid = {
    "sigmoid", "sigmoid(Tensor self) -> Tensor",
    "aten.sigmoid.default", "aten::sigmoid.out",
    kElementwise, InferFloatUnary, Reference};

}  // namespace dovetail
