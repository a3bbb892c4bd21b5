#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapNumber(ctx, [](auto x) {
    if constexpr (std::is_integral_v<decltype(x)>) return x;
    else return std::ceil(x);
  });
}
}  // namespace

constinit const OpDef kOpCeil = {
    "ceil", "ceil(Tensor self) -> Tensor",
    "aten.ceil.default", "aten::ceil.out",
    kElementwise, InferSame, Reference};

}  // namespace dovetail
