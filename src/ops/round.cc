// Halves go to the even neighbour.
#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapNumber(ctx, [](auto x) {
    if constexpr (std::is_integral_v<decltype(x)>) return x;
    else return std::nearbyint(x);
  });
}
}  // namespace

constinit const OpDef kOpRound = {
    "round", "round(Tensor self) -> Tensor",
    "aten.round.default", "aten::round.out",
    kElementwise, InferSame, Reference};

}  // namespace dovetail
