#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapNumber(ctx, [](auto x) {
    if constexpr (std::is_integral_v<decltype(x)>) return x;
    else return std::floor(x);
  });
}
}  // namespace

constinit const OpDef kOpFloor = {
    "floor", "floor(Tensor self) -> Tensor",
    "aten.floor.default", "aten::floor.out",
    kElementwise, InferSame, Reference};

}  // namespace dovetail
