// Vectors of L floats in GCC's vector extension, for the files that are compiled per instruction set (vector_kernels.h).
//
// Such a file names its vectors in a type V of an unnamed namespace, made of Lanes<L> and of what the instruction set does better. Templates
// over V then have internal linkage, and everything else here is always inlined: no function compiled for one instruction set can be what
// the linker keeps for all. For the same reason these files call no inline function or template of other headers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

// The vectors never cross a call, so how they would be passed does not matter. (By reference, since GCC notes the other regardless.)
#pragma GCC diagnostic ignored "-Wpsabi"

#define DT_LANES __attribute__((always_inline)) static inline

namespace dovetail::lanes {

// GCC takes no size that depends on a template's argument.
template <int64_t L>
struct VectorsOf;
#define DT_VECTORS_OF(L) \
  template <> \
  struct VectorsOf<L> { \
    using Floats = float __attribute__((vector_size(L * 4))); \
    using Ints = int32_t __attribute__((vector_size(L * 4))); \
    using Bytes = int8_t __attribute__((vector_size(L))); \
  };
DT_VECTORS_OF(4)
DT_VECTORS_OF(8)
DT_VECTORS_OF(16)
#undef DT_VECTORS_OF

template <int64_t L>
struct Lanes {
  static constexpr int64_t kLanes = L;
  // Vectors of sums that fit into registers with what they are sums of.
  static constexpr int64_t kSums = 8;

  using Floats = typename VectorsOf<L>::Floats;
  using Ints = typename VectorsOf<L>::Ints;
  using Bytes = typename VectorsOf<L>::Bytes;

  DT_LANES Floats Load(const float* p) {
    Floats v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  DT_LANES Floats Load(const int8_t* p) {
    Bytes v;
    std::memcpy(&v, p, sizeof(v));
    return __builtin_convertvector(__builtin_convertvector(v, Ints), Floats);
  }
  // The first n, and zeros.
  DT_LANES Floats LoadFirst(const float* p, int64_t n) {
    Floats v = {};
    std::memcpy(&v, p, static_cast<size_t>(n) * sizeof(float));
    return v;
  }
  DT_LANES Floats LoadFirst(const int8_t* p, int64_t n) {
    int8_t bytes[L] = {};
    std::memcpy(bytes, p, static_cast<size_t>(n));
    return Load(bytes);
  }
  DT_LANES void Store(float* p, const Floats& v) { std::memcpy(p, &v, sizeof(v)); }
  DT_LANES void StoreFirst(float* p, const Floats& v, int64_t n) { std::memcpy(p, &v, static_cast<size_t>(n) * sizeof(float)); }
  // Of integers from -128 to 127.
  DT_LANES void StoreBytes(int8_t* p, const Ints& v) {
    const Bytes bytes = __builtin_convertvector(v, Bytes);
    std::memcpy(p, &bytes, sizeof(bytes));
  }
  DT_LANES void StoreFirstBytes(int8_t* p, const Ints& v, int64_t n) {
    const Bytes bytes = __builtin_convertvector(v, Bytes);
    std::memcpy(p, &bytes, static_cast<size_t>(n));
  }

  DT_LANES Floats Splat(float x) { return Floats{} + x; }
  DT_LANES Ints Index() {
    Ints v;
    for (int64_t i = 0; i < L; ++i) v[i] = static_cast<int32_t>(i);
    return v;
  }
  // The first n lanes, the rest of `other`.
  DT_LANES Floats First(const Floats& v, int64_t n, const Floats& other) { return Index() < static_cast<int32_t>(n) ? v : other; }
  // The larger of each pair; b where a is NaN.
  DT_LANES Floats Max(const Floats& a, const Floats& b) { return a > b ? a : b; }
  DT_LANES Floats Abs(const Floats& v) { return reinterpret_cast<Floats>(reinterpret_cast<Ints>(v) & 0x7fffffff); }

  // Lane l of a where bit H of l is clear, else of b; or with its neighbour at distance H.
  template <int64_t H>
  DT_LANES Floats Pick(const Floats& a, const Floats& b) {
    return (Index() & static_cast<int32_t>(H)) == 0 ? a : b;
  }
  template <int64_t H>
  DT_LANES Floats Swap(const Floats& v) {
    return __builtin_shuffle(v, Index() ^ static_cast<int32_t>(H));
  }

  template <int64_t H = L / 2>
  DT_LANES float Sum(const Floats& v) {
    if constexpr (H == 0) return v[0];
    else return Sum<H / 2>(v + Swap<H>(v));
  }
  template <int64_t H = L / 2>
  DT_LANES float MaxLane(const Floats& v) {
    if constexpr (H == 0) return v[0];
    else return MaxLane<H / 2>(Max(v, Swap<H>(v)));
  }
  // Lane l is the sum of the lanes of v[l].
  template <int64_t H = L / 2>
  DT_LANES Floats Sums(const Floats* v) {
    if constexpr (H == 0) {
      return v[0];
    } else {
      Floats halves[H];
#pragma GCC unroll 16
      for (int64_t i = 0; i < H; ++i) halves[i] = Pick<H>(v[i], v[i + H]) + Swap<H>(Pick<H>(v[i + H], v[i]));
      return Sums<H / 2>(halves);
    }
  }
  // Lane j of v[i] becomes lane i of v[j].
  template <int64_t H = L / 2>
  DT_LANES void Transpose(Floats* v) {
    if constexpr (H > 0) {
#pragma GCC unroll 16
      for (int64_t i = 0; i < L; ++i) {
        if (i & H) continue;
        const Floats a = v[i], b = v[i + H];
        const Ints low = (Index() & static_cast<int32_t>(H)) == 0 ? Index() : Index() + static_cast<int32_t>(L - H);
        v[i] = __builtin_shuffle(a, b, low);
        v[i + H] = __builtin_shuffle(a, b, low + static_cast<int32_t>(H));
      }
      Transpose<H / 2>(v);
    }
  }

  // The nearest integers, ties to even, of |v| < 2^22.
  DT_LANES Floats Round(const Floats& v) { return v + 12582912.0f - 12582912.0f; }  // 1.5 * 2^23
  DT_LANES Ints ToInts(const Floats& v) { return __builtin_convertvector(v, Ints); }

  // e^x of x <= 0 to within 2 units in the last place and |x| more of them; 0 below -86 (no denormals), NaN of NaN.
  // e^x = 2^n 2^f with |f| <= 1/2; 2^f by its minimax polynomial of degree 6, whose error is 2e-9.
  DT_LANES Floats ExpOfNegative(const Floats& x) {
    const Floats t = x * 1.44269504088896341f, low = Splat(-125.0f);
    const Floats c = t < low ? low : t;
    const Floats shifted = c + 12582912.0f, f = c - (shifted - 12582912.0f);
    const Ints power = (reinterpret_cast<Ints>(shifted) - 0x4b400000 + 127) << 23;
    const Floats e = Exp2Fraction(f) * reinterpret_cast<Floats>(power);
    return t < low ? Floats{} : e;
  }
  DT_LANES Floats Exp2Fraction(const Floats& f) {
    Floats p = f * 0.00015345812425948679f + 0.0013399930903688073f;
    p = p * f + 0.009618489071726799f;
    p = p * f + 0.05550328642129898f;
    p = p * f + 0.24022646248340607f;
    p = p * f + 0.6931471824645996f;
    return p * f + 1.0f;
  }
};

DT_LANES int64_t Min(int64_t a, int64_t b) { return a < b ? a : b; }
DT_LANES int64_t Clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }
DT_LANES int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace dovetail::lanes
