#include <cmath>
#include <numbers>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Infer(const InferContext& ctx) {
  const std::string* approximate = ctx.attr(0).get<std::string>();
  if (approximate && *approximate != "none" && *approximate != "tanh")
    return InvalidArgument("gelu: approximate is '", *approximate, "'; it can be 'none' or 'tanh'");
  return InferFloatOnly(ctx);
}

Status Reference(const KernelContext& ctx) {
  const std::string* approximate = ctx.attr(0).get<std::string>();
  if (approximate && *approximate == "tanh") {
    return MapFloat(ctx, [](auto x) {
      using V = decltype(x);
      const V inner = V(std::numbers::sqrt2 * std::numbers::inv_sqrtpi) * (x + V(0.044715) * x * x * x);
      return V(0.5) * x * (1 + std::tanh(inner));
    });
  }
  return MapFloat(ctx, [](auto x) {
    using V = decltype(x);
    return x * V(0.5) * (1 + std::erf(x * V(1 / std::numbers::sqrt2)));
  });
}
}  // namespace

constinit const OpDef kOpGelu = {
    "gelu", "gelu(Tensor self, *, str approximate='none') -> Tensor",
    "aten.gelu.default", "aten::gelu.out",
    kElementwise, Infer, Reference};

}  // namespace dovetail
