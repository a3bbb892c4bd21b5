#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Reference(const KernelContext& ctx) {
  return DispatchNumber(ctx.out().dtype, [&]<class T>() {
    const auto min = ScalarAs<T>(ctx.attr(0)), max = ScalarAs<T>(ctx.attr(1));
    return MapUnary<T>(ctx, [=](auto x) { return MinPropagatingNan(MaxPropagatingNan(x, min), max); });
  });
}
}  // namespace

constinit const OpDef kOpHardtanh = {
    "hardtanh", "hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor",
    "aten.hardtanh.default", "aten::hardtanh.out",
    kElementwise, InferSame, Reference};

}  // namespace dovetail
