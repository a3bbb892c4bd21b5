#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {
Status Infer(const InferContext& ctx) {
  const DType condition = ctx.operand(0).dtype;
  if (condition != DType::kBool && condition != DType::kU8) return InvalidArgument("where: the condition is ", Name(condition), ", not bool");
  DT_ASSIGN_OR_RETURN(const Shape values, Broadcast(ctx.operand(1).shape, ctx.operand(2).shape));
  DT_ASSIGN_OR_RETURN(const Shape shape, Broadcast(ctx.operand(0).shape, values));
  return SetResult(ctx, 0, PromoteOperands(ctx.operand(1), ctx.operand(2)), shape);
}

Status Reference(const KernelContext& ctx) {
  return DispatchElement(ctx.out().dtype, [&]<class T>() {
    const Reader<BoolElement> condition(ctx.in(0));
    const Reader<T> self(ctx.in(1)), other(ctx.in(2));
    T* out = ctx.out().as<T>();
    ForEachBroadcast<3>(ctx.out(), {ctx.in(0), ctx.in(1), ctx.in(2)},
                        [&](int64_t i, const auto& at) { out[i] = Convert<T>(condition[at[0]] ? self[at[1]] : other[at[2]]); });
    return OkStatus();
  });
}
}  // namespace

constinit const OpDef kOpWhere = {
    "where", "where(Tensor condition, Tensor self, Tensor other) -> Tensor",
    "aten.where.self", "aten::where.self_out",
    kElementwise, Infer, Reference};

}  // namespace dovetail
