#include "ops/dispatch.h"
#include "ops/infer_util.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& ctx) {
  ctx.results[0] = ctx.operand(0);
  return OkStatus();
}

Status Reference(const KernelContext& ctx) {
  CopyBytes(ctx.out().data, ctx.in(0).data, ctx.out().nbytes());
  return OkStatus();
}

}  // namespace

constinit const OpDef kOpClone = {
    "clone", "clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
    "aten.clone.default aten.contiguous.default aten.alias.default aten.alias_copy.default aten.detach.default aten.detach_copy.default "
    "aten.lift_fresh_copy.default",
    "aten::clone.out", kDataMovement, Infer, Reference};

}  // namespace dovetail
