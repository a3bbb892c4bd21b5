#include "backends/xnnpack/delegate/row_kernels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "backends/xnnpack/delegate/kernel_calls.h"
#include "backends/xnnpack/delegate/kernel_samples.h"
#include "backends/xnnpack/delegate/kernel_table.h"

#ifdef DOVETAIL_XNNPACK_ROW_KERNELS
// GCC 12 takes the intrinsics' undefined vectors for mistakes (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

// Of the library, whose headers do not have them; CMakeLists.txt makes sure that they can be linked.
extern "C" {
dovetail::RowKernel xnn_qd8_f32_qc8w_gemm_minmax_ukernel_1x16c8__avx512vnni_prfm;
dovetail::RowKernel xnn_qd8_f32_qb4w_gemm_minmax_ukernel_1x16c8__avx512vnni_prfm;
const void* xnn_init_qd8_f32_qc8w_gemm_config();
const void* xnn_init_qd8_f32_qb4w_gemm_config();
// Null in a library that was built without AMX.
__attribute__((weak)) dovetail::RowKernel xnn_qd8_f32_qc8w_gemm_minmax_ukernel_1x64c4__avx512amx;
}
#endif

namespace dovetail {
#ifdef DOVETAIL_XNNPACK_ROW_KERNELS
namespace {

// Eight bytes of the row in each lane, moved to the unsigned range; what that adds is in the sums of the weights.
DT_VNNI inline __m512i Broadcast(const int8_t* a) {
  int64_t eight;
  std::memcpy(&eight, a, sizeof(eight));
  return _mm512_set1_epi64(eight ^ static_cast<int64_t>(0x8080808080808080));
}

// 16 columns' sums from two vectors that have each column's as two neighbours.
DT_VNNI inline __m512i Columns(__m512i low, __m512i high) {
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  low = _mm512_add_epi32(low, _mm512_srli_epi64(low, 32));
  high = _mm512_add_epi32(high, _mm512_srli_epi64(high, 32));
  return _mm512_permutex2var_epi32(low, even, high);
}

DT_VNNI inline void Store(float* c, __m512 v, size_t columns) {
  if (columns >= 16) _mm512_storeu_ps(c, v);
  else _mm512_mask_storeu_ps(c, static_cast<__mmask16>((1u << columns) - 1), v);
}

// For 16 columns: their sums of weights (int32), for every 8 of the inner size 8 bytes of each column, scales and biases (float).
DT_VNNI void Int8Row(size_t, size_t columns, size_t inner, const int8_t* a, size_t, const void* weights, float* c, size_t, size_t c_stride,
                     const void* params, const void* quantization) {
  const FloatRange range = *static_cast<const FloatRange*>(params);
  const RowQuantization q = *static_cast<const RowQuantization*>(quantization);
  const __m512 min = _mm512_set1_ps(range.min), max = _mm512_set1_ps(range.max), scale = _mm512_set1_ps(q.scale);
  const __m512i zero_point = _mm512_set1_epi32(q.zero_point + 128);
  const size_t steps = (inner + 7) / 8;
  const char* w = static_cast<const char*>(weights);
  for (;;) {
    const __m512i start = _mm512_mullo_epi32(zero_point, _mm512_loadu_si512(w));
    w += 64;
    __m512i low = _mm512_cvtepu32_epi64(_mm512_castsi512_si256(start)), high = _mm512_cvtepu32_epi64(_mm512_extracti64x4_epi64(start, 1));
    __m512i low2 = _mm512_setzero_si512(), high2 = low2;
    size_t k = 0;
    for (; k + 2 <= steps; k += 2) {
      const __m512i a0 = Broadcast(a + 8 * k), a1 = Broadcast(a + 8 * k + 8);
      low = _mm512_dpbusd_epi32(low, a0, _mm512_loadu_si512(w));
      high = _mm512_dpbusd_epi32(high, a0, _mm512_loadu_si512(w + 64));
      low2 = _mm512_dpbusd_epi32(low2, a1, _mm512_loadu_si512(w + 128));
      high2 = _mm512_dpbusd_epi32(high2, a1, _mm512_loadu_si512(w + 192));
      w += 256;
    }
    if (k < steps) {
      const __m512i a0 = Broadcast(a + 8 * k);
      low = _mm512_dpbusd_epi32(low, a0, _mm512_loadu_si512(w));
      high = _mm512_dpbusd_epi32(high, a0, _mm512_loadu_si512(w + 64));
      w += 128;
    }
    __m512 v = _mm512_cvtepi32_ps(Columns(_mm512_add_epi32(low, low2), _mm512_add_epi32(high, high2)));
    v = _mm512_fmadd_ps(_mm512_mul_ps(v, scale), _mm512_loadu_ps(w), _mm512_loadu_ps(w + 64));
    w += 128;
    Store(c, _mm512_min_ps(_mm512_max_ps(v, min), max), columns);
    if (columns <= 16) return;
    columns -= 16;
    c = reinterpret_cast<float*>(reinterpret_cast<char*>(c) + c_stride);
  }
}

// The same for 64 columns, with 4 bytes of each column for every 4 of the inner size: XNNPACK's layout for AMX, whose own kernel fills one row of 16 in its
// tiles. Sums of integers are the same in any order.
DT_VNNI void Int8RowOf64(size_t, size_t columns, size_t inner, const int8_t* a, size_t, const void* weights, float* c, size_t, size_t c_stride,
                         const void* params, const void* quantization) {
  constexpr size_t kVectors = 4, kStep = 64 * kVectors;
  const FloatRange range = *static_cast<const FloatRange*>(params);
  const RowQuantization q = *static_cast<const RowQuantization*>(quantization);
  const __m512 min = _mm512_set1_ps(range.min), max = _mm512_set1_ps(range.max), scale = _mm512_set1_ps(q.scale);
  const __m512i zero_point = _mm512_set1_epi32(q.zero_point + 128);
  const size_t steps = (inner + 3) / 4;
  const char* w = static_cast<const char*>(weights);
  const auto four = [a](size_t k) DT_VNNI {
    int32_t bytes;
    std::memcpy(&bytes, a + 4 * k, sizeof(bytes));
    return _mm512_xor_si512(_mm512_set1_epi32(bytes), _mm512_set1_epi8(-128));
  };
  for (;;) {
    __m512i sums[kVectors], more[kVectors];
    for (size_t i = 0; i < kVectors; ++i) {
      sums[i] = _mm512_mullo_epi32(zero_point, _mm512_loadu_si512(w + 64 * i));
      more[i] = _mm512_setzero_si512();
    }
    w += kStep;
    size_t k = 0;
    for (; k + 2 <= steps; k += 2, w += 2 * kStep) {
      const __m512i a0 = four(k), a1 = four(k + 1);
      for (size_t i = 0; i < kVectors; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a0, _mm512_loadu_si512(w + 64 * i));
      for (size_t i = 0; i < kVectors; ++i) more[i] = _mm512_dpbusd_epi32(more[i], a1, _mm512_loadu_si512(w + kStep + 64 * i));
    }
    if (k < steps) {
      const __m512i a0 = four(k);
      for (size_t i = 0; i < kVectors; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a0, _mm512_loadu_si512(w + 64 * i));
      w += kStep;
    }
    for (size_t i = 0; i < kVectors && 16 * i < columns; ++i) {
      __m512 v = _mm512_cvtepi32_ps(_mm512_add_epi32(sums[i], more[i]));
      v = _mm512_fmadd_ps(_mm512_mul_ps(v, scale), _mm512_loadu_ps(w + 64 * i), _mm512_loadu_ps(w + kStep + 64 * i));
      Store(c + 16 * i, _mm512_min_ps(_mm512_max_ps(v, min), max), columns - 16 * i);
    }
    w += 2 * kStep;
    if (columns <= 64) return;
    columns -= 64;
    c = reinterpret_cast<float*>(reinterpret_cast<char*>(c) + c_stride);
  }
}

// For 16 columns: their sums of weights (float), then for every block: for every 16 of the inner size 8 bytes of each column, the first 8 in the low
// halves and the last 8 in the high ones, and the block's scales (bfloat16); then biases (float). A half counts 16 times.
// `prefetch` is how many bytes ahead of the weights in use memory is asked for, 0: not at all.
template <size_t prefetch>
DT_VNNI void Int4Row(size_t, size_t columns, size_t inner, const int8_t* a, size_t, const void* weights, float* c, size_t, size_t c_stride,
                     const void* params, const void* quantization) {
  const BlockRange range = *static_cast<const BlockRange*>(params);
  const RowQuantization q = *static_cast<const RowQuantization*>(quantization);
  const __m512 min = _mm512_set1_ps(range.min), max = _mm512_set1_ps(range.max), scale = _mm512_set1_ps(q.scale);
  const __m512 zero_point = _mm512_set1_ps(static_cast<float>(q.zero_point) + 128);
  const __m512i halves = _mm512_set1_epi8(static_cast<char>(0xF0));
  const size_t blocks = (inner + range.block - 1) / range.block, steps = range.block / 16;
  const char* w = static_cast<const char*>(weights);
  for (;;) {
    __m512 v = _mm512_mul_round_ps(zero_point, _mm512_loadu_ps(w), _MM_FROUND_CUR_DIRECTION);
    w += 64;
    const int8_t* row = a;
    for (size_t b = 0; b < blocks; ++b) {
      __m512i low = _mm512_setzero_si512(), high = low, low2 = low, high2 = low;
      for (size_t k = 0; k < steps; ++k) {
        const __m512i a0 = Broadcast(row), a1 = Broadcast(row + 8);
        if constexpr (prefetch > 0) {
          _mm_prefetch(w + prefetch, _MM_HINT_T0);
          _mm_prefetch(w + prefetch + 64, _MM_HINT_T0);
        }
        const __m512i first = _mm512_loadu_si512(w), second = _mm512_loadu_si512(w + 64);
        low = _mm512_dpbusd_epi32(low, a0, _mm512_and_si512(_mm512_slli_epi32(first, 4), halves));
        high = _mm512_dpbusd_epi32(high, a0, _mm512_and_si512(_mm512_slli_epi32(second, 4), halves));
        low2 = _mm512_dpbusd_epi32(low2, a1, _mm512_and_si512(first, halves));
        high2 = _mm512_dpbusd_epi32(high2, a1, _mm512_and_si512(second, halves));
        w += 128;
        row += 16;
      }
      const __m512i sums = Columns(_mm512_add_epi32(low, low2), _mm512_add_epi32(high, high2));
      const __m512i scales = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w))), 16);
      w += 32;
      v = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), _mm512_castsi512_ps(scales), v);
    }
    // With the rounding spelled, the compiler does not make the two one operation.
    v = _mm512_add_ps(_mm512_mul_round_ps(v, scale, _MM_FROUND_CUR_DIRECTION), _mm512_loadu_ps(w));
    w += 64;
    Store(c, _mm512_min_ps(_mm512_max_ps(v, min), max), columns);
    if (columns <= 16) return;
    columns -= 16;
    c = reinterpret_cast<float*>(reinterpret_cast<char*>(c) + c_stride);
  }
}

// Intel's prefetchers stop at a page's end, and blocks of 4 bits are used up before they start anew; on AMD (Zen 4) asking is slower.
constexpr size_t kPageAhead = 4096;

constexpr RowKernelPair PairOfBlocks(RowKernel* ours) {
  return {"qd8_f32_qb4w", xnn_qd8_f32_qb4w_gemm_minmax_ukernel_1x16c8__avx512vnni_prfm, ours, xnn_init_qd8_f32_qb4w_gemm_config, 16, 8, 32};
}
constexpr RowKernelPair kInt8{"qd8_f32_qc8w", xnn_qd8_f32_qc8w_gemm_minmax_ukernel_1x16c8__avx512vnni_prfm, Int8Row, xnn_init_qd8_f32_qc8w_gemm_config,
                              16,             8,                                                            0};
constexpr RowKernelPair kInt8Amx{"qd8_f32_qc8w_amx", xnn_qd8_f32_qc8w_gemm_minmax_ukernel_1x64c4__avx512amx, Int8RowOf64, xnn_init_qd8_f32_qc8w_gemm_config,
                                 64,                 4,                                                      0};
// What has AMX comes last.
constexpr RowKernelPair kPairs[] = {kInt8, PairOfBlocks(Int4Row<0>), kInt8Amx};
constexpr RowKernelPair kIntelPairs[] = {kInt8, PairOfBlocks(Int4Row<kPageAhead>), kInt8Amx};

// The part of XNNPACK's record that begins with its kernels is searched; it is longer than this in every version that has these kernels.
constexpr size_t kSearchedWords = 8;

RowKernel** Find(const RowKernelPair& pair, RowKernel* kernel) { return kernel ? FindKernel(pair.table(), kSearchedWords, kernel) : nullptr; }

}  // namespace

const RowKernelPair* RowKernels(size_t* count) {
  *count = 0;
  if (!HasVnni()) return nullptr;
  // A processor may have AMX where the system does not let it be used; XNNPACK asked.
  const bool amx = Find(kInt8Amx, kInt8Amx.theirs) || Find(kInt8Amx, kInt8Amx.ours);
  *count = std::size(kPairs) - (amx ? 0 : 1);
  return __builtin_cpu_is("intel") ? kIntelPairs : kPairs;
}

void UseRowKernels() {
  size_t count = 0;
  const RowKernelPair* pairs = RowKernels(&count);
  for (size_t i = 0; i < count; ++i)
    if (RowKernel** at = Find(pairs[i], pairs[i].theirs); at && SameResults(pairs[i])) *at = pairs[i].ours;
}
#else
const RowKernelPair* RowKernels(size_t* count) {
  *count = 0;
  return nullptr;
}
void UseRowKernels() {}
#endif

bool SameResults(const RowKernelPair& pair) {
  const size_t nr = pair.nr;
  SampleNumbers random;
  for (const size_t inner : {size_t{32}, size_t{64}, size_t{160}, size_t{8}, size_t{13}, size_t{71}}) {
    if (pair.block != 0 && inner % pair.block != 0) continue;
    for (const size_t columns : {size_t{1}, nr - 1, nr, 2 * nr + 8}) {
      const size_t groups = (columns + nr - 1) / nr, padded = (inner + 15) / 16 * 16;
      std::vector<int8_t> a(padded + 64);
      random.Fill(a);
      PackedSample packed;
      for (size_t g = 0; g < groups; ++g) {
        if (pair.block) {
          packed.PutBlocks(random, nr, inner, pair.block);
          continue;
        }
        std::vector<int8_t> bytes((inner + pair.kr - 1) / pair.kr * pair.kr * nr);
        random.Fill(bytes);
        std::vector<int32_t> sums(nr);  // negative: what a zero point of 1 adds
        for (size_t i = 0; i < bytes.size();)
          for (int32_t& sum : sums)
            for (size_t k = 0; k < pair.kr; ++k) sum -= bytes[i++];
        for (const int32_t x : sums) packed.Put(x);
        packed.PutBytes(bytes);
        packed.PutNumbers(random, 2 * nr);  // scales and biases
      }
      const std::byte* const weights = packed.Start();
      for (const float limit : {INFINITY, 50.0f}) {
        const BlockRange blocks{-limit, limit, pair.block};
        const FloatRange range{-limit, limit};
        const void* params = pair.block ? static_cast<const void*>(&blocks) : &range;
        const RowQuantization q[2] = {{static_cast<int32_t>(random.Next() % 256) - 128, 0.013f}, {0, 1}};
        std::vector<float> theirs(columns, 1), ours(columns, 2);
        pair.theirs(1, columns, inner, a.data(), inner, weights, theirs.data(), 4 * columns, 4 * nr, params, q);
        pair.ours(1, columns, inner, a.data(), inner, weights, ours.data(), 4 * columns, 4 * nr, params, q);
        if (std::memcmp(theirs.data(), ours.data(), columns * sizeof(float)) != 0) return false;
      }
    }
  }
  return true;
}

}  // namespace dovetail
