#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapFloat(ctx, [](auto x) { return std::log1p(x); });
}
}  // namespace

constinit const OpDef kOpLog1p = {
    "log1p", "log1p(Tensor self) -> Tensor",
    "aten.log1p.default aten.special_log1p.default", "aten::log1p.out",
    kElementwise, InferFloatUnary, Reference};

}  // namespace dovetail
