#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapBinary(ctx, [](auto a, auto b) { return WrappingMul(a, b); });
}
}  // namespace

constinit const OpDef kOpMul = {
    "mul", "mul(Tensor self, Tensor other) -> Tensor",
    "aten.mul.Tensor aten.multiply.Tensor", "aten::mul.out",
    kElementwise | kCommutative, InferBinary, Reference};

}  // namespace dovetail
