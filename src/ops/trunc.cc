#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapNumber(ctx, [](auto x) {
    if constexpr (std::is_integral_v<decltype(x)>) return x;
    else return std::trunc(x);
  });
}
}  // namespace

constinit const OpDef kOpTrunc = {
    "trunc", "trunc(Tensor self) -> Tensor",
    "aten.trunc.default aten.fix.default", "aten::trunc.out",
    kElementwise, InferSame, Reference};

}  // namespace dovetail
