#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Infer(const InferContext& ctx) { return SetResult(ctx, 0, DType::kBool, ctx.operand(0).shape); }

Status Reference(const KernelContext& ctx) {
  return DispatchElement(ctx.in(0).dtype, [&]<class T>() {
    const Reader<T> in(ctx.in(0));
    BoolElement* out = ctx.out().as<BoolElement>();
    const int64_t n = ctx.out().numel();
    for (int64_t i = 0; i < n; ++i) out[i] = Convert<BoolElement>(in[i] == 0);
    return OkStatus();
  });
}
}  // namespace

constinit const OpDef kOpLogicalNot = {
    "logical_not", "logical_not(Tensor self) -> Tensor",
    "aten.logical_not.default", "aten::logical_not.out",
    kElementwise, Infer, Reference};

}  // namespace dovetail
