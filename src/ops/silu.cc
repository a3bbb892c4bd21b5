#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapFloat(ctx, [](auto x) { return x / (1 + std::exp(-x)); });
}
}  // namespace

constinit const OpDef kOpSilu = {
    "silu", "silu(Tensor self) -> Tensor",
    "aten.silu.default", "dovetail::silu.out",
    kElementwise | kFused, InferFloatOnly, Reference};

}  // namespace dovetail
