// Where min is above max the result is max; float bounds make a float of an integer tensor.
#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Infer(const InferContext& ctx) {
  const TensorType& self = ctx.operand(0);
  if (ctx.attr(0).is_none() && ctx.attr(1).is_none()) return InvalidArgument("clamp: at least one of min and max must be given");
  const DType dtype = PromoteScalar(PromoteScalar(self.dtype, ctx.attr(0)), ctx.attr(1));
  if (dtype == DType::kBool) return InvalidArgument("clamp is not defined for bool");
  return SetResult(ctx, 0, dtype, self.shape);
}

Status Reference(const KernelContext& ctx) {
  return DispatchNumber(ctx.out().dtype, [&]<class T>() {
    const bool has_min = !ctx.attr(0).is_none(), has_max = !ctx.attr(1).is_none();
    const auto min = ScalarAs<T>(ctx.attr(0)), max = ScalarAs<T>(ctx.attr(1));
    return MapUnary<T>(ctx, [=](auto x) {
      if (has_min) x = MaxPropagatingNan(x, min);
      return has_max ? MinPropagatingNan(x, max) : x;
    });
  });
}
}  // namespace

constinit const OpDef kOpClamp = {
    "clamp", "clamp(Tensor self, Scalar? min=None, Scalar? max=None) -> Tensor",
    "aten.clamp.default aten.clip.default", "aten::clamp.out",
    kElementwise, Infer, Reference};

}  // namespace dovetail
