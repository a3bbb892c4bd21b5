// True division: integers give f32.
#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Infer(const InferContext& ctx) {
  DT_RETURN_IF_ERROR(InferBinary(ctx));
  if (!IsFloat(ctx.results[0].dtype)) ctx.results[0].dtype = DType::kF32;
  return OkStatus();
}

Status Reference(const KernelContext& ctx) {
  return DispatchFloat(ctx.out().dtype, [&]<class T>() { return MapBinaryAs<T, T>(ctx, [](auto a, auto b) { return a / b; }); });
}
}  // namespace

constinit const OpDef kOpDiv = {
    "div", "div(Tensor self, Tensor other) -> Tensor",
    "aten.div.Tensor aten.divide.Tensor aten.true_divide.Tensor", "aten::div.out",
    kElementwise, Infer, Reference};

}  // namespace dovetail
