#include "kernels/vector_table.h"

#if defined(__x86_64__)
#include <immintrin.h>

namespace dovetail {
namespace {

struct Vectors8 : lanes::Lanes<8> {
  using lanes::Lanes<8>::Load;

  DT_LANES __m256i FirstMask(int64_t n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), reinterpret_cast<__m256i>(Index())); }
  DT_LANES Floats Load(const int8_t* p) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)))); }
  DT_LANES Floats LoadFirst(const float* p, int64_t n) { return _mm256_maskload_ps(p, FirstMask(n)); }
  DT_LANES Floats LoadFirst(const int8_t* p, int64_t n) { return lanes::Lanes<8>::LoadFirst(p, n); }
  DT_LANES void StoreFirst(float* p, const Floats& v, int64_t n) { _mm256_maskstore_ps(p, FirstMask(n), v); }
  DT_LANES __m128i ToBytes(const Ints& v) {
    const __m256i i = reinterpret_cast<__m256i>(v);
    const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
    return _mm_packs_epi16(words, words);
  }
  DT_LANES void StoreBytes(int8_t* p, const Ints& v) { _mm_storel_epi64(reinterpret_cast<__m128i*>(p), ToBytes(v)); }
  DT_LANES Floats Max(const Floats& a, const Floats& b) { return _mm256_max_ps(a, b); }
  DT_LANES Floats Round(const Floats& v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  DT_LANES Ints ToInts(const Floats& v) { return reinterpret_cast<Ints>(_mm256_cvtps_epi32(v)); }
};

}  // namespace

extern const VectorKernels kVectorsAvx2;
constinit const VectorKernels kVectorsAvx2 = lanes::Table<Vectors8>("avx2");

}  // namespace dovetail
#endif
