// -1, 0 or 1; of a NaN 0, as in eager PyTorch.
#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapNumber(ctx, [](auto x) { return static_cast<int>(x > 0) - static_cast<int>(x < 0); });
}
}  // namespace

constinit const OpDef kOpSign = {
    "sign", "sign(Tensor self) -> Tensor",
    "aten.sign.default aten.sgn.default", "aten::sign.out",
    kElementwise, InferSame, Reference};

}  // namespace dovetail
