// The loops of elementwise reference kernels. A kernel is one of these with the formula as a generic lambda over the computing type:
//   return MapFloat(ctx, [](auto x) { return std::exp(x); });
#pragma once

#include <array>

#include "ops/dispatch.h"
#include "ops/infer_util.h"

namespace dovetail {

// fn(i, offsets) for every element i of `out` in order, offsets[k] being the element of in[k] that broadcasts to it.
template <size_t N, class Fn>
void ForEachBroadcast(const TensorView& out, const std::array<TensorView, N>& in, Fn fn) {
  const int64_t n = out.numel();
  std::array<std::array<int64_t, N>, kMaxRank> strides{};
  for (size_t k = 0; k < N; ++k) {
    const size_t skipped = out.rank - in[k].rank;
    for (size_t d = skipped; d < out.rank; ++d)
      if (in[k].sizes[d - skipped] != 1) strides[d][k] = in[k].stride(d - skipped);
  }
  std::array<int64_t, kMaxRank> index{};
  std::array<int64_t, N> offsets{};
  for (int64_t i = 0; i < n; ++i) {
    fn(i, offsets);
    for (size_t d = out.rank; d-- > 0;) {
      for (size_t k = 0; k < N; ++k) offsets[k] += strides[d][k];
      if (++index[d] < out.sizes[d]) break;
      for (size_t k = 0; k < N; ++k) offsets[k] -= strides[d][k] * out.sizes[d];
      index[d] = 0;
    }
  }
}

// out[i] = fn(in[i]), both as T; a bool or integer result of fn converts to T.
template <class T, class Fn>
Status MapUnary(const KernelContext& ctx, Fn fn) {
  const Reader<T> in(ctx.in(0));
  T* out = ctx.out().as<T>();
  const int64_t n = ctx.out().numel();
  for (int64_t i = 0; i < n; ++i) out[i] = Convert<T>(fn(in[i]));
  return OkStatus();
}

// Computed in the result's type, which is float: integer operands convert first.
template <class Fn>
Status MapFloat(const KernelContext& ctx, Fn fn) {
  return DispatchFloat(ctx.out().dtype, [&]<class T>() { return MapUnary<T>(ctx, fn); });
}
template <class Fn>
Status MapNumber(const KernelContext& ctx, Fn fn) {
  return DispatchNumber(ctx.out().dtype, [&]<class T>() { return MapUnary<T>(ctx, fn); });
}

// out[i] = fn(a, b): operands broadcast and read as T, the result converted to Out.
template <class T, class Out, class Fn>
Status MapBinaryAs(const KernelContext& ctx, Fn fn) {
  const Reader<T> a(ctx.in(0)), b(ctx.in(1));
  Out* out = ctx.out().as<Out>();
  ForEachBroadcast<2>(ctx.out(), {ctx.in(0), ctx.in(1)}, [&](int64_t i, const auto& at) { out[i] = Convert<Out>(fn(a[at[0]], b[at[1]])); });
  return OkStatus();
}

// Computed in the result's type, which is that of the operands or what they promote to.
template <class Fn>
Status MapBinary(const KernelContext& ctx, Fn fn) {
  return DispatchElement(ctx.out().dtype, [&]<class T>() { return MapBinaryAs<T, T>(ctx, fn); });
}

// A comparison, in the type that the operands promote to.
template <class Fn>
Status MapCompare(const KernelContext& ctx, Fn fn) {
  auto rank_and_type = [](const TensorView& v) { return TensorType(v.dtype, Shape(v.shape())); };
  const DType common = PromoteOperands(rank_and_type(ctx.in(0)), rank_and_type(ctx.in(1)));
  return DispatchElement(common, [&]<class T>() { return MapBinaryAs<T, BoolElement>(ctx, fn); });
}

// Integer arithmetic that wraps, as PyTorch's does, without undefined behaviour; plain arithmetic for floats; bool: or, and.
template <class V>
V WrappingAdd(V a, V b) {
  if constexpr (std::is_same_v<V, bool>) return a || b;
  else if constexpr (std::is_integral_v<V>) return static_cast<V>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else return a + b;
}
template <class V>
V WrappingSub(V a, V b) {
  if constexpr (std::is_integral_v<V>) return static_cast<V>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  else return a - b;
}
template <class V>
V WrappingMul(V a, V b) {
  if constexpr (std::is_same_v<V, bool>) return a && b;
  else if constexpr (std::is_integral_v<V>) return static_cast<V>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else return a * b;
}

// Of integers: wraps around, and to a negative power only 1 and -1 leave something.
template <class V>
V IntegerPower(V base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? V(1) : base == static_cast<V>(-1) ? static_cast<V>(exponent % 2 == 0 ? 1 : -1) : V(0);
  V result = 1;
  for (; exponent > 0; exponent >>= 1, base = WrappingMul(base, base))
    if (exponent & 1) result = WrappingMul(result, base);
  return result;
}

// NaN if either is.
template <class V>
V MaxPropagatingNan(V a, V b) {
  return a != a ? a : (b != b || b > a) ? b : a;
}
template <class V>
V MinPropagatingNan(V a, V b) {
  return a != a ? a : (b != b || b < a) ? b : a;
}

}  // namespace dovetail
