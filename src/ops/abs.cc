// The most negative integer is its own absolute value.
#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return MapNumber(ctx, [](auto x) { return std::signbit(static_cast<double>(x)) ? WrappingMul(x, static_cast<decltype(x)>(-1)) : x; });
}
}  // namespace

constinit const OpDef kOpAbs = {
    "abs", "abs(Tensor self) -> Tensor",
    "aten.abs.default aten.absolute.default", "aten::abs.out",
    kElementwise, InferSame, Reference};

}  // namespace dovetail
