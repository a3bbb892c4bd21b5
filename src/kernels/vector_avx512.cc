#include "kernels/vector_table.h"

#if defined(__x86_64__)
// GCC 12 warns of its own intrinsics, whose undefined operands are meant to be so (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

namespace dovetail {
namespace {

struct Vectors16 : lanes::Lanes<16> {
  static constexpr int64_t kSums = 16;
  using lanes::Lanes<16>::Load;

  DT_LANES __mmask16 FirstMask(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
  DT_LANES Floats Widen(__m128i bytes) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)); }
  DT_LANES Floats Load(const int8_t* p) { return Widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  DT_LANES Floats LoadFirst(const float* p, int64_t n) { return _mm512_maskz_loadu_ps(FirstMask(n), p); }
  DT_LANES Floats LoadFirst(const int8_t* p, int64_t n) { return Widen(_mm_maskz_loadu_epi8(FirstMask(n), p)); }
  DT_LANES void StoreFirst(float* p, const Floats& v, int64_t n) { _mm512_mask_storeu_ps(p, FirstMask(n), v); }
  DT_LANES __m128i ToBytes(const Ints& v) { return _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(v)); }
  DT_LANES void StoreBytes(int8_t* p, const Ints& v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), ToBytes(v)); }
  DT_LANES void StoreFirstBytes(int8_t* p, const Ints& v, int64_t n) { _mm_mask_storeu_epi8(p, FirstMask(n), ToBytes(v)); }
  DT_LANES Floats First(const Floats& v, int64_t n, const Floats& other) { return _mm512_mask_blend_ps(FirstMask(n), other, v); }
  DT_LANES Floats Max(const Floats& a, const Floats& b) { return _mm512_max_ps(a, b); }
  DT_LANES Floats Abs(const Floats& v) { return _mm512_abs_ps(v); }
  DT_LANES float MaxLane(const Floats& v) { return _mm512_reduce_max_ps(v); }
  DT_LANES Floats Round(const Floats& v) { return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  DT_LANES Ints ToInts(const Floats& v) { return reinterpret_cast<Ints>(_mm512_cvtps_epi32(v)); }
  DT_LANES Floats ExpOfNegative(const Floats& x) {
    const Floats t = x * 1.44269504088896341f, n = Round(t);
    const __mmask16 counts = _mm512_cmp_ps_mask(t, _mm512_set1_ps(-125), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(counts, Exp2Fraction(t - n), n);
  }
};

}  // namespace

extern const VectorKernels kVectorsAvx512;
constinit const VectorKernels kVectorsAvx512 = lanes::Table<Vectors16>("avx512");

}  // namespace dovetail
#endif
