// Division rounded towards minus infinity, in the type that the operands promote to.
#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {

template <class V>
V FloorQuotient(V a, V b) {
  if constexpr (std::is_integral_v<V>) {
    if (std::is_signed_v<V> && b == static_cast<V>(-1)) return WrappingSub(V(0), a);  // the least integer has no negative
    return static_cast<V>(a / b - (a % b != 0 && (a < 0) != (b < 0)));
  } else {
    if (b == 0) return a / b;
    // Of the remainder, which is exact: a quotient that was rounded up to an integer would be one too many.
    const V rest = std::fmod(a, b);
    V quotient = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
    return quotient == 0 ? std::copysign(V(0), a / b) : std::nearbyint(quotient);
  }
}

Status Reference(const KernelContext& ctx) {
  return DispatchNumber(ctx.out().dtype, [&]<class T>() -> Status {
    if constexpr (std::is_integral_v<ComputeOf<T>>) {
      const Reader<T> divisor(ctx.in(1));
      for (int64_t i = 0, n = ctx.out().numel() == 0 ? 0 : ctx.in(1).numel(); i < n; ++i)
        if (divisor[i] == 0) return InvalidArgument("floor_divide of integers by zero");
    }
    return MapBinaryAs<T, T>(ctx, [](auto a, auto b) { return FloorQuotient(a, b); });
  });
}

}  // namespace

constinit const OpDef kOpFloorDivide = {
    "floor_divide", "floor_divide(Tensor self, Tensor other) -> Tensor",
    "", "aten::floor_divide.out",
    kElementwise, InferBinaryNoBool, Reference};

}  // namespace dovetail
