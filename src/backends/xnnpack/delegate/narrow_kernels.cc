#include "backends/xnnpack/delegate/narrow_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

namespace dovetail {
namespace {

// As XNNPACK calls them: `rows` (1 to 16) by `columns` int8 at c, from rows of `inner` int8 (readable up to a multiple of 4) and packed weights.
using Gemm = void(size_t rows, size_t columns, size_t inner, const int8_t* a, size_t a_stride, const void* w, int8_t* c, size_t c_row_stride,
                  size_t c_column_stride, const void* params);
// The sum over taps of the same, with 16 pointers to rows for each tap: those that are not `zero` are moved by `offset`.
using Igemm = void(size_t rows, size_t columns, size_t inner, size_t tap_bytes, const int8_t** a, const void* w, int8_t* c, size_t c_row_stride,
                   size_t c_column_stride, size_t offset, const int8_t* zero, const void* params);

}  // namespace
}  // namespace dovetail

// Null in a library that was built without AMX or hides it.
extern "C" {
__attribute__((weak)) dovetail::Gemm xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_16x64c4__avx512amx;
__attribute__((weak)) dovetail::Igemm xnn_qs8_qc8w_igemm_minmax_fp32_ukernel_16x64c4__avx512amx;
__attribute__((weak)) const void* xnn_init_qs8_qc8w_gemm_config();
}

namespace dovetail {
namespace {

constexpr size_t kRows = 16, kColumns = 64;  // of a tile

struct Rows {
  const int8_t* const* at;  // kRows for each tap
  size_t taps, inner, offset;
  const int8_t* zero;
};

// 16 * vectors columns of 8 rows. For 64 columns `group` has their biases (int32), for every 4 of each tap's inner size 4 bytes of each column, and scales
// (float); `first` of the columns are left out.
template <size_t vectors>
DT_VNNI void Block(const Rows& in, size_t first_row, size_t rows, size_t first, size_t columns, const char* group, int8_t* c, size_t c_stride,
                   const ByteRange& out) {
  constexpr size_t kBlock = 8;
  const size_t steps = (in.inner + 3) / 4;
  const char* w = group + 4 * kColumns + 4 * first;
  const __m512i high = _mm512_set1_epi8(-128);
  __m512i sums[kBlock][vectors], weights[vectors];  // weights: 128 times their sum, which moving the rows to the unsigned range adds
#pragma GCC unroll 8
  for (size_t v = 0; v < vectors; ++v) {
    weights[v] = _mm512_setzero_si512();
#pragma GCC unroll 8
    for (size_t r = 0; r < kBlock; ++r) sums[r][v] = _mm512_setzero_si512();
  }
  for (size_t tap = 0; tap < in.taps; ++tap) {
    const int8_t* row[kBlock];
#pragma GCC unroll 8
    for (size_t r = 0; r < kBlock; ++r) {
      row[r] = in.at[tap * kRows + first_row + r];
      if (row[r] != in.zero) row[r] += in.offset;
    }
    for (size_t k = 0; k < steps; ++k, w += 4 * kColumns) {
      __m512i bytes[vectors];
#pragma GCC unroll 8
      for (size_t v = 0; v < vectors; ++v) {
        bytes[v] = _mm512_loadu_si512(w + 64 * v);
        weights[v] = _mm512_dpbusd_epi32(weights[v], high, bytes[v]);
      }
#pragma GCC unroll 8
      for (size_t r = 0; r < kBlock; ++r) {
        int32_t four;
        std::memcpy(&four, row[r] + 4 * k, sizeof(four));
        const __m512i x = _mm512_xor_si512(_mm512_set1_epi32(four), high);
#pragma GCC unroll 8
        for (size_t v = 0; v < vectors; ++v) sums[r][v] = _mm512_dpbusd_epi32(sums[r][v], x, bytes[v]);
      }
    }
  }
  const char* scales = group + 4 * kColumns + in.taps * steps * 4 * kColumns + 4 * first;
  const __m512 max = _mm512_set1_ps(static_cast<float>(out.max - out.zero_point));
  const __m512i zero_point = _mm512_set1_epi32(out.zero_point);
  const __m128i min = _mm_set1_epi8(static_cast<char>(out.min));
#pragma GCC unroll 8
  for (size_t v = 0; v < vectors; ++v) {
    const size_t left = columns - std::min(columns, first + 16 * v);
    const __mmask16 mask = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1u << left) - 1);
    const __m512i start = _mm512_sub_epi32(_mm512_loadu_si512(group + 4 * first + 64 * v), weights[v]);
    const __m512 scale = _mm512_loadu_ps(scales + 64 * v);
#pragma GCC unroll 8
    for (size_t r = 0; r < kBlock; ++r) {
      if (first_row + r >= rows) break;
      const __m512 scaled = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(start, sums[r][v])), scale);
      const __m512i rounded = _mm512_add_epi32(_mm512_cvtps_epi32(_mm512_min_ps(scaled, max)), zero_point);
      _mm_mask_storeu_epi8(c + (first_row + r) * c_stride + first + 16 * v, mask, _mm_max_epi8(_mm512_cvtsepi32_epi8(rounded), min));
    }
  }
}

void Columns(const Rows& in, size_t rows, size_t columns, const char* group, int8_t* c, size_t c_stride, const ByteRange& out) {
  for (size_t row = 0; row < rows; row += 8) {
    size_t first = 0;
    for (; first + 16 < columns; first += 32) Block<2>(in, row, rows, first, columns, group, c, c_stride, out);
    if (first < columns) Block<1>(in, row, rows, first, columns, group, c, c_stride, out);
  }
}

// How many of the columns, from the first, are better left to AMX, by the layers of MobileNetV2 on Sapphire Rapids; `depth` is the inner size of all taps.
size_t ForAmx(size_t columns, size_t depth) {
  if (depth <= 24) return 0;
  const size_t last = columns % kColumns;
  return last != 0 && last * depth <= 1536 ? columns - last : columns;
}

template <class Theirs>
void Split(const Rows& in, size_t rows, size_t columns, const void* w, int8_t* c, size_t c_row_stride, size_t c_column_stride, const void* params,
           const Theirs& theirs) {
  const size_t steps = (in.inner + 3) / 4 * in.taps, group_bytes = (4 + steps * 4 + 4) * kColumns;
  const size_t amx = ForAmx(columns, 4 * steps);
  if (amx > 0) theirs(amx);
  const char* group = static_cast<const char*>(w) + amx / kColumns * group_bytes;
  c += amx / kColumns * c_column_stride;
  for (size_t column = amx; column < columns; column += kColumns, group += group_bytes, c += c_column_stride)
    Columns(in, rows, std::min(kColumns, columns - column), group, c, c_row_stride, *static_cast<const ByteRange*>(params));
}

void OurGemm(size_t rows, size_t columns, size_t inner, const int8_t* a, size_t a_stride, const void* w, int8_t* c, size_t c_row_stride,
             size_t c_column_stride, const void* params) {
  const int8_t* at[kRows];
  for (size_t r = 0; r < kRows; ++r) at[r] = a + std::min(r, rows - 1) * a_stride;
  Split({at, 1, inner, 0, nullptr}, rows, columns, w, c, c_row_stride, c_column_stride, params, [&](size_t n) {
    xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_16x64c4__avx512amx(rows, n, inner, a, a_stride, w, c, c_row_stride, c_column_stride, params);
  });
}

void OurIgemm(size_t rows, size_t columns, size_t inner, size_t tap_bytes, const int8_t** a, const void* w, int8_t* c, size_t c_row_stride,
              size_t c_column_stride, size_t offset, const int8_t* zero, const void* params) {
  Split({a, tap_bytes / (kRows * sizeof(void*)), inner, offset, zero}, rows, columns, w, c, c_row_stride, c_column_stride, params, [&](size_t n) {
    xnn_qs8_qc8w_igemm_minmax_fp32_ukernel_16x64c4__avx512amx(rows, n, inner, tap_bytes, a, w, c, c_row_stride, c_column_stride, offset, zero, params);
  });
}

template <class Kernel>
Kernel** Find(Kernel* kernel) {
  return kernel && xnn_init_qs8_qc8w_gemm_config ? FindKernel(xnn_init_qs8_qc8w_gemm_config(), 2 * GemmTable::kMostRows, kernel) : nullptr;
}

bool Agree() {
  SampleNumbers random;
  for (const size_t taps : {size_t{1}, size_t{9}}) {
    for (const size_t inner : {size_t{3}, size_t{24}, size_t{68}}) {
      for (const size_t columns : {size_t{5}, size_t{44}, size_t{69}}) {
        const size_t groups = (columns + 63) / 64, steps = (inner + 3) / 4 * taps, padded = steps / taps * 4;
        std::vector<int32_t> w(kPackedAlignment / sizeof(int32_t) + groups * 64 * (2 + steps));
        int32_t* const weights = PackedStart(w);
        int32_t* at = weights;
        for (size_t g = 0; g < groups; ++g) {
          for (size_t i = 0; i < 64; ++i) *at++ = static_cast<int32_t>(random.Next() % 4001) - 2000;
          for (size_t i = 0; i < 64 * steps; ++i) *at++ = static_cast<int32_t>(random.Next() << 8 | (random.Next() & 0xFF));
          for (size_t i = 0; i < 64; ++i, ++at) {
            const float scale = static_cast<float>(random.Next() % 1000 + 1) * 2e-6f;
            std::memcpy(at, &scale, sizeof(scale));
          }
        }
        std::vector<int8_t> a((taps * kRows + 2) * padded + 64);
        random.Fill(a);
        const int8_t* const zero = a.data() + (taps * kRows + 1) * padded;
        std::vector<const int8_t*> pointers(taps * kRows);
        for (size_t i = 0; i < pointers.size(); ++i) pointers[i] = i % 7 == 3 ? zero : a.data() + i * padded;
        for (const size_t rows : {size_t{1}, size_t{7}, size_t{16}}) {
          const ByteRange out{static_cast<int16_t>(random.Next() % 100), -120, 125};
          std::vector<int8_t> theirs(rows * columns, 1), ours(rows * columns, 2);
          if (taps == 1) {
            xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_16x64c4__avx512amx(rows, columns, inner, a.data(), padded, weights, theirs.data(), columns, 64, &out);
            OurGemm(rows, columns, inner, a.data(), padded, weights, ours.data(), columns, 64, &out);
          } else {
            const size_t bytes = pointers.size() * sizeof(void*);
            const int8_t** from = pointers.data();
            xnn_qs8_qc8w_igemm_minmax_fp32_ukernel_16x64c4__avx512amx(rows, columns, inner, bytes, from, weights, theirs.data(), columns, 64, 5, zero, &out);
            OurIgemm(rows, columns, inner, bytes, from, weights, ours.data(), columns, 64, 5, zero, &out);
          }
          if (theirs != ours) return false;
        }
      }
    }
  }
  return true;
}

}  // namespace

bool NarrowKernelsAgree() {
  const bool used = Find(xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_16x64c4__avx512amx) || Find(OurGemm);
  return !used || Agree();
}

int UseNarrowKernels() {
  Gemm** gemm = Find(xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_16x64c4__avx512amx);
  Igemm** igemm = Find(xnn_qs8_qc8w_igemm_minmax_fp32_ukernel_16x64c4__avx512amx);
  if (!gemm || !igemm || !Agree()) return 0;
  *gemm = OurGemm;
  *igemm = OurIgemm;
  return 2;
}

}  // namespace dovetail
#else
namespace dovetail {
int UseNarrowKernels() { return 0; }
bool NarrowKernelsAgree() { return true; }
}  // namespace dovetail
#endif
