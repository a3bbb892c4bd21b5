// What floor_divide leaves: it has the divisor's sign.
#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {

template <class V>
V Remainder(V a, V b) {
  V rest;
  if constexpr (std::is_integral_v<V>) rest = std::is_signed_v<V> && b == static_cast<V>(-1) ? V(0) : static_cast<V>(a % b);
  else rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? static_cast<V>(rest + b) : rest;
}

Status Reference(const KernelContext& ctx) {
  return DispatchNumber(ctx.out().dtype, [&]<class T>() -> Status {
    if constexpr (std::is_integral_v<ComputeOf<T>>) {
      const Reader<T> divisor(ctx.in(1));
      for (int64_t i = 0, n = ctx.out().numel() == 0 ? 0 : ctx.in(1).numel(); i < n; ++i)
        if (divisor[i] == 0) return InvalidArgument("remainder of integers by zero");
    }
    return MapBinaryAs<T, T>(ctx, [](auto a, auto b) { return Remainder(a, b); });
  });
}

}  // namespace

constinit const OpDef kOpRemainder = {
    "remainder", "remainder(Tensor self, Tensor other) -> Tensor",
    "", "aten::remainder.Tensor_out",
    kElementwise, InferBinaryNoBool, Reference};

}  // namespace dovetail
