// Rows of numbers, over the vectors V of an instruction set (lanes.h).
#pragma once

#include "kernels/lanes.h"
#include "kernels/vector_kernels.h"

namespace dovetail::lanes {

template <class V>
int64_t LengthAboveNone(const float* x, int64_t n) {
  using Floats = typename V::Floats;
  constexpr int64_t L = V::kLanes;
  for (; n >= 4 * L; n -= 4 * L) {
    Floats others = {};
#pragma GCC unroll 4
    for (int64_t i = 1; i <= 4; ++i) others += V::Load(x + n - i * L) == -__builtin_inff() ? Floats{} : V::Splat(1);
    if (V::Sum(others) != 0) break;
  }
  for (; n >= L; n -= L)
    if (V::Sum(V::Load(x + n - L) == -__builtin_inff() ? Floats{} : V::Splat(1)) != 0) break;
  while (n > 0 && x[n - 1] == -__builtin_inff()) --n;
  return n;
}

template <class V>
void AddScaled(float* to, const float* from, float factor, int64_t n) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::Store(to + i, V::Load(to + i) + V::Load(from + i) * factor);
  if (i < n) V::StoreFirst(to + i, V::LoadFirst(to + i, n - i) + V::LoadFirst(from + i, n - i) * factor, n - i);
}

template <class V>
bool ScaleFinite(float* x, float factor, int64_t n) {
  typename V::Floats check = {};
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) {
    const typename V::Floats v = V::Load(x + i) * factor;
    V::Store(x + i, v);
    check += v * 0.0f;
  }
  if (i < n) {
    const typename V::Floats v = V::LoadFirst(x + i, n - i) * factor;
    V::StoreFirst(x + i, v, n - i);
    check += v * 0.0f;
  }
  return V::Sum(check) == 0;
}

// SymmetricRowScale of ops/quantization.h, which these files must not call.
DT_LANES float RowScale(float most) {
  const float scale = most / 127;
  if (scale < 1.17549435e-38f) return 0;
  uint32_t bits;
  std::memcpy(&bits, &scale, sizeof(bits));
  bits = (bits + 0x7f + ((bits >> 8) & 1)) & ~0xffu;
  float rounded;
  std::memcpy(&rounded, &bits, sizeof(rounded));
  return rounded;
}

// The integers are those of the quotient in double. In float it errs by less than 2^-15 (127 times two roundings), so that only one nearer than that to a
// tie might be rounded otherwise; rows with such a quotient are done again in double.
template <class V>
float QuantizeRow(int8_t* out, const float* in, int64_t n) {
  using Floats = typename V::Floats;
  constexpr int64_t L = V::kLanes;
  Floats largest = {};
  int64_t i = 0;
  for (; i + L <= n; i += L) largest = V::Max(V::Abs(V::Load(in + i)), largest);
  if (i < n) largest = V::Max(V::Abs(V::LoadFirst(in + i, n - i)), largest);
  const float scale = RowScale(V::MaxLane(largest));
  if (!(scale > 0) || scale == __builtin_inff()) {  // all zeros, or quotients that are 0 or no number
    std::memset(out, 0, static_cast<size_t>(n));
    return scale;
  }

  const float inverse = 1 / scale;
  Floats farthest = {};
  const auto quantize = [&](const Floats& x) __attribute__((always_inline)) {
    const Floats q = x == x ? x * inverse : Floats{}, rounded = V::Round(q);
    farthest = V::Max(V::Abs(q - rounded), farthest);
    return V::ToInts(rounded);
  };
  for (i = 0; i + L <= n; i += L) V::StoreBytes(out + i, quantize(V::Load(in + i)));
  if (i < n) V::StoreFirstBytes(out + i, quantize(V::LoadFirst(in + i, n - i)), n - i);
  if (V::MaxLane(farthest) < 0.5f - 0x1p-15f) return scale;

  for (i = 0; i < n; ++i) {
    double q = static_cast<double>(in[i]) / static_cast<double>(scale);
    q = q == q ? q : 0;
    out[i] = static_cast<int8_t>(static_cast<int32_t>(q + 6755399441055744.0 - 6755399441055744.0));  // 1.5 * 2^52: to an integer, ties to even
  }
  return scale;
}

template <class V>
void DequantizeRow(float* out, const int8_t* in, float scale, int64_t n) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::Store(out + i, V::Load(in + i) * scale);
  if (i < n) V::StoreFirst(out + i, V::LoadFirst(in + i, n - i) * scale, n - i);
}

template <class V>
void RmsNormRow(float* out, const float* in, const float* weight, float eps, int64_t n) {
  using Floats = typename V::Floats;
  constexpr int64_t L = V::kLanes;
  const int64_t whole = n / L * L;
  Floats sums[2] = {};
  int64_t i = 0;
  for (; i + 2 * L <= n; i += 2 * L) {
    const Floats a = V::Load(in + i), b = V::Load(in + i + L);
    sums[0] += a * a;
    sums[1] += b * b;
  }
  for (; i < n; i += L) {
    const Floats x = i < whole ? V::Load(in + i) : V::LoadFirst(in + i, n - i);
    sums[0] += x * x;
  }
  const float scale = 1 / __builtin_sqrtf(V::Sum(sums[0] + sums[1]) / static_cast<float>(n) + eps);
  for (i = 0; i < whole; i += L) V::Store(out + i, V::Load(in + i) * scale * V::Load(weight + i));
  if (i < n) V::StoreFirst(out + i, V::LoadFirst(in + i, n - i) * scale * V::LoadFirst(weight + i, n - i), n - i);
}

// Mean and variance one after the other: the difference of their sums would lose what a large mean leaves of small differences.
template <class V>
void LayerNormRow(float* out, const float* in, const float* weight, const float* bias, float eps, int64_t n) {
  using Floats = typename V::Floats;
  constexpr int64_t L = V::kLanes;
  const int64_t whole = n / L * L, rest = n - whole;
  const float inverse = 1 / static_cast<float>(n);
  // The sum of take(x) over the row; what is not there is zero.
  const auto total = [&](const auto& take) __attribute__((always_inline)) {
    Floats sums[2] = {};
    int64_t i = 0;
    for (; i + 2 * L <= n; i += 2 * L) {
      sums[0] += take(V::Load(in + i));
      sums[1] += take(V::Load(in + i + L));
    }
    if (i + L <= n) sums[0] += take(V::Load(in + i));
    if (rest) sums[1] += V::First(take(V::LoadFirst(in + whole, rest)), rest, Floats{});
    return V::Sum(sums[0] + sums[1]);
  };
  const float mean = total([](const Floats& x) __attribute__((always_inline)) { return x; }) * inverse;
  const auto square = [&](const Floats& x) __attribute__((always_inline)) { return (x - mean) * (x - mean); };
  const float scale = 1 / __builtin_sqrtf(total(square) * inverse + eps);
  for (int64_t i = 0; i < whole; i += L) V::Store(out + i, (V::Load(in + i) - mean) * scale * V::Load(weight + i) + V::Load(bias + i));
  if (rest == 0) return;
  const Floats last = (V::LoadFirst(in + whole, rest) - mean) * scale * V::LoadFirst(weight + whole, rest) + V::LoadFirst(bias + whole, rest);
  V::StoreFirst(out + whole, last, rest);
}

// x / (1 + e^-x) by e^-|x|, which does not overflow.
template <class V>
void SiluMul(float* out, const float* gate, const float* up, int64_t n) {
  using Floats = typename V::Floats;
  const auto silu = [](const Floats& x, const Floats& by) __attribute__((always_inline)) {
    const Floats e = V::ExpOfNegative(-V::Abs(x));
    return x * (x < 0.0f ? e : V::Splat(1)) / (1.0f + e) * by;
  };
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) V::Store(out + i, silu(V::Load(gate + i), V::Load(up + i)));
  if (i < n) V::StoreFirst(out + i, silu(V::LoadFirst(gate + i, n - i), V::LoadFirst(up + i, n - i)), n - i);
}

template <class V>
void SoftmaxRow(float* out, const float* in, int64_t n) {
  using Floats = typename V::Floats;
  constexpr int64_t L = V::kLanes;
  const int64_t whole = n / L * L, rest = n - whole;
  const Floats none = V::Splat(-__builtin_inff()), last = rest ? V::First(V::LoadFirst(in + whole, rest), rest, none) : none;
  Floats largest = last;
  for (int64_t i = 0; i < whole; i += L) largest = V::Max(V::Load(in + i), largest);
  const float most = V::MaxLane(largest);
  Floats total = {};
  for (int64_t i = 0; i < whole; i += L) {
    const Floats e = V::ExpOfNegative(V::Load(in + i) - most);
    V::Store(out + i, e);
    total += e;
  }
  const Floats e = V::First(V::ExpOfNegative(last - most), rest, Floats{});  // what is not there has no weight, also where all are -inf
  const float factor = 1 / V::Sum(total + e);
  for (int64_t i = 0; i < whole; i += L) V::Store(out + i, V::Load(out + i) * factor);
  if (rest) V::StoreFirst(out + whole, e * factor, rest);
}

template <class V>
void Rotate(float* out, const float* in, const float* cos, const float* sin, int64_t half) {
  using Floats = typename V::Floats;
  constexpr int64_t L = V::kLanes;
  const auto load = [](const float* p, int64_t n) __attribute__((always_inline)) { return n == L ? V::Load(p) : V::LoadFirst(p, n); };
  const auto store = [](float* p, const Floats& v, int64_t n) __attribute__((always_inline)) { return n == L ? V::Store(p, v) : V::StoreFirst(p, v, n); };
  const auto rotate = [&](int64_t i, int64_t n) __attribute__((always_inline)) {
    const Floats a = load(in + i, n), b = load(in + half + i, n);
    store(out + i, a * load(cos + i, n) - b * load(sin + i, n), n);
    store(out + half + i, b * load(cos + half + i, n) + a * load(sin + half + i, n), n);
  };
  int64_t i = 0;
  for (; i + L <= half; i += L) rotate(i, L);
  if (i < half) rotate(i, half - i);
}

}  // namespace dovetail::lanes
