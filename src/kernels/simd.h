// Vectors of floats in GCC's vector extension, wide as a register: 8 lanes on x86-64, 4 elsewhere.
//
// A loop worth it stands in a function marked DT_VECTORIZED: on x86-64 it is compiled twice, for any machine and for those with AVX2 and
// FMA (x86-64-v3), and the loader picks one. Helpers here are always inlined into such a function, so they get its instruction set.
// Such a function must not be a template.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

// The vectors never cross a call, so how they would be passed does not matter. (By reference, since GCC notes the other regardless.)
#pragma GCC diagnostic ignored "-Wpsabi"

#define DT_INLINE __attribute__((always_inline)) inline
// Sanitizers instrument the loader's choice, which runs before they are ready.
#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define DT_VECTORIZED __attribute__((target_clones("default", "arch=x86-64-v3")))
#else
#define DT_VECTORIZED
#endif

namespace dovetail::simd {

#ifdef __x86_64__
inline constexpr int64_t kLanes = 8;
#else
inline constexpr int64_t kLanes = 4;
#endif

using Floats = float __attribute__((vector_size(kLanes * 4)));
using Ints = int32_t __attribute__((vector_size(kLanes * 4)));

// Of a constant; arithmetic takes a variable as it is (x * v), which GCC 12 compiles to much better code.
DT_INLINE Floats Splat(float x) {
#ifdef __x86_64__
  return Floats{x, x, x, x, x, x, x, x};
#else
  return Floats{x, x, x, x};
#endif
}
DT_INLINE Floats LoadFloats(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
// The first n floats, n < kLanes, and zeros.
DT_INLINE Floats LoadFirst(const float* p, int64_t n) {
  Floats v = {};
  std::memcpy(&v, p, static_cast<size_t>(n) * sizeof(float));
  return v;
}
// What was loaded before stays in registers. (Else GCC makes the load a part of every instruction that uses it.)
DT_INLINE void KeepLoaded() { std::atomic_signal_fence(std::memory_order_acq_rel); }
DT_INLINE void StoreFloats(float* p, const Floats& v) { std::memcpy(p, &v, sizeof(v)); }
// The larger of each pair; b where a is NaN.
DT_INLINE Floats Max(const Floats& a, const Floats& b) { return a > b ? a : b; }

// Element i is the sum of the lanes of v[i], of kLanes vectors.
DT_INLINE Floats Sums(const Floats* v) {
  Floats pairs[kLanes / 2], quads[kLanes / 4];
#ifdef __x86_64__
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Floats &a = v[2 * i], &b = v[2 * i + 1];
    pairs[i] = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13) + __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const Floats &a = pairs[2 * i], &b = pairs[2 * i + 1];
    quads[i] = __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13) + __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15);
  }
  return __builtin_shufflevector(quads[0], quads[1], 0, 1, 2, 3, 8, 9, 10, 11) + __builtin_shufflevector(quads[0], quads[1], 4, 5, 6, 7, 12, 13, 14, 15);
#else
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const Floats &a = v[2 * i], &b = v[2 * i + 1];
    pairs[i] = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
  }
  quads[0] = __builtin_shufflevector(pairs[0], pairs[1], 0, 1, 4, 5) + __builtin_shufflevector(pairs[0], pairs[1], 2, 3, 6, 7);
  return quads[0];
#endif
}
// One vector's, added in the same order.
DT_INLINE float Sum(const Floats& v) {
  float sum = (v[0] + v[2]) + (v[1] + v[3]);
#ifdef __x86_64__
  sum += (v[4] + v[6]) + (v[5] + v[7]);
#endif
  return sum;
}
DT_INLINE float MaxLane(const Floats& v) {
  float most = v[0];
  for (int64_t i = 1; i < kLanes; ++i) most = v[i] > most ? v[i] : most;
  return most;
}

// e^x to within 2 units in the last place: 0 below -87.3 (no denormals), infinity above 88.7, NaN of NaN.
// x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its Taylor polynomial of degree 7, whose rest is below 3e-9; ln 2 in two parts so that
// n ln 2 loses nothing.
DT_INLINE Floats Exp(const Floats& x) {
  const Floats low = Splat(-87.3f), high = Splat(88.72f), round = Splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  Floats c = x < low ? low : x;
  c = c > high ? high : c;
  const Floats shifted = c * 1.44269504088896341f + round;
  const Floats n = shifted - round;
  const Floats r = c - n * 0.693359375f - n * -2.12194440e-4f;
  Floats p = Splat(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // 2^n in two factors, since 2^128 is no float.
  const Ints power = reinterpret_cast<Ints>(shifted) - reinterpret_cast<Ints>(round), half = power >> 1;
  const Floats scaled = p * reinterpret_cast<Floats>((half + 127) << 23) * reinterpret_cast<Floats>((power - half + 127) << 23);
  return x < low ? Floats{} : x > high ? Splat(__builtin_inff()) : scaled;
}
// One number, with exactly the result that Exp has in a lane.
DT_INLINE float Exp(float x) { return Exp(Splat(x))[0]; }

}  // namespace dovetail::simd
