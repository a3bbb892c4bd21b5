#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapFloat(ctx, [](auto x) { return std::log(x); });
}
}  // namespace

constinit const OpDef kOpLog = {
    "log", "log(Tensor self) -> Tensor",
    "aten.log.default", "aten::log.out",
    kElementwise, InferFloatUnary, Reference};

}  // namespace dovetail
