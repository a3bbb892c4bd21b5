// Vectors of floats in GCC's vector extension, wide as a register: 8 lanes on x86-64, 4 elsewhere.
//
// A loop worth it stands in a function marked DT_VECTORIZED: on x86-64 it is compiled twice, for any machine and for those with AVX2 and
// FMA (x86-64-v3), and the loader picks one. Helpers here are always inlined into such a function, so they get its instruction set.
// Such a function must not be a template.
#pragma once

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

DT_INLINE Floats Splat(float x) { return x - Floats{}; }
DT_INLINE Floats LoadFloats(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
DT_INLINE void StoreFloats(float* p, const Floats& v) { std::memcpy(p, &v, sizeof(v)); }
// The larger of each pair; b where a is NaN.
DT_INLINE Floats Max(const Floats& a, const Floats& b) { return a > b ? a : b; }

DT_INLINE Floats SwapHalves(const Floats& v) {
#ifdef __x86_64__
  return __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
#else
  return __builtin_shufflevector(v, v, 2, 3, 0, 1);
#endif
}
DT_INLINE float Sum(const Floats& lanes) {
  const Floats v = lanes + SwapHalves(lanes);
  if constexpr (kLanes == 8) return (v[0] + v[2]) + (v[1] + v[3]);
  else return v[0] + v[1];
}
DT_INLINE float MaxLane(const Floats& lanes) {
  const Floats v = Max(lanes, SwapHalves(lanes));
  float most = v[0];
  for (int64_t i = 1; i < kLanes / 2; ++i) most = v[i] > most ? v[i] : most;
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
