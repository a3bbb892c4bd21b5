#include <algorithm>

#include "ops/dispatch.h"
#include "ops/infer_util.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& ctx) {
  const DType dtype = ctx.attr(2).Type();
  if (dtype == DType::kNone) return InvalidArgument("full: no element type is given");
  DT_ASSIGN_OR_RETURN(const Shape shape, ShapeFromSizes(DimsOf(ctx.attr(0)), "full"));
  return SetResult(ctx, 0, dtype, shape);
}

Status Reference(const KernelContext& ctx) {
  return DispatchConvertible(ctx.out().dtype, [&]<class T>() {
    std::fill_n(ctx.out().as<T>(), ctx.out().numel(), Convert<T>(ScalarAs<T>(ctx.attr(1))));
    return OkStatus();
  });
}

}  // namespace

constinit const OpDef kOpFull = {
    "full", "full(SymInt[] size, Scalar fill_value, *, ScalarType out_dtype) -> Tensor", "", "aten::full.out", kPure, Infer, Reference};

}  // namespace dovetail
