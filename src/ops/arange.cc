// start, start + step, ... below end (above it with a negative step): ceil((end - start) / step) elements.
#include <cmath>

#include "ops/dispatch.h"
#include "ops/infer_util.h"

namespace dovetail {
namespace {

Status NoRange(const InferContext& ctx) {
  return InvalidArgument("arange: no range from ", ctx.attr(0).ToString(), " to ", ctx.attr(1).ToString(), " with step ", ctx.attr(2).ToString());
}

Result<Dim> Length(const InferContext& ctx, DType dtype) {
  const Attr &start = ctx.attr(0), &end = ctx.attr(1), &step = ctx.attr(2);
  const bool fractional = start.is<double>() || end.is<double>() || step.is<double>();
  if (fractional && dtype != DType::kI64) {
    for (const Attr* a : {&start, &end, &step})
      if (a->is<Dim>() && !a->SymInt().is_constant()) return Unsupported("arange: symbolic bounds beside fractional ones");
    const double length = std::ceil((end.Number() - start.Number()) / step.Number(1));
    if (step.Number(1) == 0 || !(length >= 0) || length > 0x1p62) return NoRange(ctx);
    return Dim(static_cast<int64_t>(length));
  }
  // For i64, fractional bounds are cut first.
  const auto whole = [](const Attr& a) { return a.is<Dim>() ? a.SymInt() : Dim(Convert<int64_t>(a.Number())); };
  const Dim stride = step.is_none() ? Dim(1) : whole(step);
  if (!stride.is_constant() || stride == Dim(0)) return InvalidArgument("arange: step ", stride.ToString(), " is not a constant other than 0");
  const Dim extent = stride.value() > 0 ? whole(end) - whole(start) : whole(start) - whole(end);
  if (extent.is_constant() && extent.value() < 0) return NoRange(ctx);
  if (extent == Dim(0)) return Dim(0);
  const Dim magnitude = stride.value() > 0 ? stride : Dim(0) - stride;
  return extent.is_constant() ? Dim::FloorDiv(extent - Dim(1), magnitude) + Dim(1) : CeilDiv(extent, magnitude);
}

Status Infer(const InferContext& ctx) {
  const DType dtype = ctx.attr(3).Type();
  if (!IsFloat(dtype) && !IsInteger(dtype)) return InvalidArgument("arange: no range of elements of type ", Name(dtype));
  DT_ASSIGN_OR_RETURN(const Dim length, Length(ctx, dtype));
  return SetResult(ctx, 0, dtype, Shape{length});
}

Status Reference(const KernelContext& ctx) {
  const int64_t n = ctx.out().numel();
  if (IsInteger(ctx.out().dtype)) {
    const uint64_t start = static_cast<uint64_t>(ScalarAs<int64_t>(ctx.attr(0)));
    const uint64_t step = static_cast<uint64_t>(ScalarAs<int64_t>(ctx.attr(2), 1));
    return DispatchInteger(ctx.out().dtype, [&]<class T>() {
      for (int64_t i = 0; i < n; ++i) ctx.out().as<T>()[i] = static_cast<T>(start + static_cast<uint64_t>(i) * step);
      return OkStatus();
    });
  }
  const double start = ctx.attr(0).Number(), step = ctx.attr(2).Number(1);
  return DispatchFloat(ctx.out().dtype, [&]<class T>() {
    for (int64_t i = 0; i < n; ++i) ctx.out().as<T>()[i] = Convert<T>(start + static_cast<double>(i) * step);
    return OkStatus();
  });
}

}  // namespace

constinit const OpDef kOpArange = {"arange",
                                   "arange(Scalar start, Scalar end, Scalar step=1, *, ScalarType out_dtype) -> Tensor",
                                   "",
                                   "aten::arange.start_out",
                                   kPure,
                                   Infer,
                                   Reference};

}  // namespace dovetail
