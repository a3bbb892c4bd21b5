#include "backends/xnnpack/delegate/float_kernels.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "backends/xnnpack/delegate/kernel_calls.h"
#include "backends/xnnpack/delegate/kernel_samples.h"
#include "backends/xnnpack/delegate/kernel_table.h"

#ifdef DOVETAIL_XNNPACK_FLOAT_KERNELS
// GCC 12 takes the intrinsics' undefined vectors for mistakes (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

// Of the library, whose headers do not have them; CMakeLists.txt makes sure that they can be linked.
extern "C" {
dovetail::FloatKernel xnn_f32_gemm_minmax_ukernel_7x32__avx512f_broadcast;
const void* xnn_init_f32_gemm_config();
}
#endif

namespace dovetail {
namespace {

constexpr size_t kColumns = 32;  // of weights that lie together: a panel

}  // namespace

#ifdef DOVETAIL_XNNPACK_FLOAT_KERNELS
namespace {

constexpr size_t kTheirRows = 7;
constexpr size_t kHalf = 14;       // rows at a time: with two vectors of sums each, two of weights and one input they are 31 of 32 registers
constexpr size_t kAhead = 4096;    // bytes from the weights that are multiplied to those that are asked for
constexpr size_t kVector = 16;
constexpr size_t kShort = 32;      // inner indices, up to which results take more time to write than to compute

struct Tile {
  size_t inner, a_stride, c_stride;
  FloatRange range;
};

// `rows` by `columns` results, of which `vectors` are enough. Each starts from its bias and takes the inner indices in order, as XNNPACK's do.
template <size_t rows, size_t vectors>
__attribute__((target("avx512f"))) void Panel(const Tile& tile, const char* a, const float* w, char* c, size_t columns) {
  __m512 sum[rows][vectors];
#pragma GCC unroll 2
  for (size_t v = 0; v < vectors; ++v) {
    const __m512 bias = _mm512_loadu_ps(w + v * kVector);
#pragma GCC unroll 14
    for (size_t r = 0; r < rows; ++r) sum[r][v] = bias;
  }
  // Results are asked for too, since to be written they must be in the cache.
#pragma GCC unroll 14
  for (size_t r = 0; r < rows; ++r)
#pragma GCC unroll 2
    for (size_t v = 0; v < vectors; ++v) __builtin_prefetch(c + r * tile.c_stride + v * kVector * sizeof(float), 1);
  // A pointer serves for three rows, which the processor's addresses can reach from it; one for each row would be more than it has registers.
  constexpr size_t groups = (rows + 2) / 3;
  const size_t stride = tile.a_stride;
  const char* group[groups];
#pragma GCC unroll 5
  for (size_t i = 0; i < groups; ++i) group[i] = a + 3 * i * stride;
  for (size_t k = tile.inner; k > 0; --k) {
    w += kColumns;
    // Few rows need the weights faster than the loads for this leave room.
    if constexpr (rows > kHalf / 2) {
      _mm_prefetch(reinterpret_cast<const char*>(w) + kAhead, _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(w) + kAhead + kVector * sizeof(float), _MM_HINT_T0);
    }
    __m512 weights[vectors];
#pragma GCC unroll 2
    for (size_t v = 0; v < vectors; ++v) weights[v] = _mm512_loadu_ps(w + v * kVector);
#pragma GCC unroll 14
    for (size_t r = 0; r < rows; ++r) {
      float x;
      std::memcpy(&x, group[r / 3] + r % 3 * stride, sizeof(x));
      const __m512 input = _mm512_set1_ps(x);
#pragma GCC unroll 2
      for (size_t v = 0; v < vectors; ++v) sum[r][v] = _mm512_fmadd_ps(input, weights[v], sum[r][v]);
    }
#pragma GCC unroll 5
    for (size_t i = 0; i < groups; ++i) {
      group[i] += sizeof(float);
      asm("" : "+r"(group[i]));  // else the compiler keeps one for each row
    }
  }
  const __m512 min = _mm512_set1_ps(tile.range.min), max = _mm512_set1_ps(tile.range.max);
#pragma GCC unroll 2
  for (size_t v = 0; v < vectors; ++v) {
    // In this order NaN stays NaN.
#pragma GCC unroll 14
    for (size_t r = 0; r < rows; ++r) sum[r][v] = _mm512_min_ps(max, _mm512_max_ps(min, sum[r][v]));
    char* const to = c + v * kVector * sizeof(float);
    if (const size_t count = columns - v * kVector; count >= kVector) {
#pragma GCC unroll 14
      for (size_t r = 0; r < rows; ++r) _mm512_storeu_ps(to + r * tile.c_stride, sum[r][v]);
    } else {
#pragma GCC unroll 14
      for (size_t r = 0; r < rows; ++r) _mm512_mask_storeu_ps(to + r * tile.c_stride, static_cast<__mmask16>((1U << count) - 1), sum[r][v]);
    }
  }
}

using PanelFunction = decltype(&Panel<1, 1>);
// Those of 1 to kHalf rows.
template <size_t vectors, class = std::make_index_sequence<kHalf>>
struct Panels;
template <size_t vectors, size_t... i>
struct Panels<vectors, std::index_sequence<i...>> {
  static constexpr PanelFunction kOf[] = {Panel<i + 1, vectors>...};
};

// All columns of up to 2 * kHalf rows.
void Rows(const Tile& tile, size_t rows, size_t columns, const char* a, const float* w, char* c, size_t c_column_stride) {
  const size_t first = rows <= kHalf ? 0 : rows / 2, second = rows - first;
  for (;; c += c_column_stride, columns -= kColumns, w += kColumns * (1 + tile.inner)) {
    const size_t count = std::min(columns, kColumns);
    const PanelFunction* const panels = count > kVector ? Panels<2>::kOf : Panels<1>::kOf;
    if (first > 0) panels[first - 1](tile, a, w, c, count);
    panels[second - 1](tile, a + first * tile.a_stride, w, c + first * tile.c_stride, count);
    if (count == columns) return;
  }
}

void Multiply(size_t rows, size_t columns, size_t inner, const float* a, size_t a_stride, const float* w, float* c, size_t c_row_stride,
              size_t c_column_stride, const void* params) {
  const Tile tile{inner / sizeof(float), a_stride, c_row_stride, *static_cast<const FloatRange*>(params)};
  // Where writing takes the time, few rows at once keep it to few places.
  const size_t most = tile.inner <= kShort ? kHalf / 2 : rows;
  for (size_t r = 0; r < rows; r += most)
    Rows(tile, std::min(most, rows - r), columns, reinterpret_cast<const char*>(a) + r * a_stride, w, reinterpret_cast<char*>(c) + r * c_row_stride,
         c_column_stride);
}

constexpr FloatKernelPair kPair = {xnn_f32_gemm_minmax_ukernel_7x32__avx512f_broadcast, Multiply, kTheirRows, 2 * kHalf};

}  // namespace

const FloatKernelPair* FloatKernels() { return __builtin_cpu_supports("avx512f") ? &kPair : nullptr; }

FloatKernel** FindFloatKernel(FloatKernel* kernel) { return FindKernel(xnn_init_f32_gemm_config(), GemmTable::kMostRows, kernel); }

void UseFloatKernels() {
  const FloatKernelPair* pair = FloatKernels();
  if (pair && SameResults(*pair)) AddTile(xnn_init_f32_gemm_config(), pair->theirs, pair->their_rows, kColumns, 0, pair->ours, pair->our_rows);
}
#else
const FloatKernelPair* FloatKernels() { return nullptr; }
FloatKernel** FindFloatKernel(FloatKernel*) { return nullptr; }
void UseFloatKernels() {}
#endif

bool SameResults(const FloatKernelPair& pair, const FloatSample& sample) {
  const size_t rows = sample.rows, columns = sample.columns, inner = sample.inner;
  SampleNumbers random(sample.seed);
  // In floats, from one row and from one panel's results to the next.
  const size_t panels = (columns + kColumns - 1) / kColumns, a_stride = inner + 3, c_column = kColumns + 5, c_row = panels * c_column + 2;
  std::vector<float> a(rows * a_stride), memory(panels * kColumns * (1 + inner) + kPackedAlignment / sizeof(float));
  for (std::vector<float>* values : {&a, &memory})
    for (float& x : *values) x = static_cast<float>(random.Next()) / 8388608 - 1;
  a[rows / 2 * a_stride + inner / 2] = std::numeric_limits<float>::quiet_NaN();
  const float* const w = PackedStart(memory);
  const FloatRange range{sample.min, sample.max};
  constexpr size_t kBytes = sizeof(float);
  const auto call = [&](FloatKernel* kernel, size_t most, float* c) {
    for (size_t r = 0; r < rows; r += most)
      kernel(std::min(most, rows - r), columns, inner * kBytes, a.data() + r * a_stride, a_stride * kBytes, w, c + r * c_row, c_row * kBytes,
             c_column * kBytes, &range);
  };
  std::vector<float> theirs(rows * c_row, 7), ours = theirs;
  call(pair.theirs, pair.their_rows, theirs.data());
  call(pair.ours, pair.our_rows, ours.data());
  return std::memcmp(theirs.data(), ours.data(), theirs.size() * kBytes) == 0;
}

bool SameResults(const FloatKernelPair& pair) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // One pass of rows and two, and few inner indices; partial panels of two vectors and of one.
  for (const size_t rows : {size_t{5}, size_t{13}, pair.our_rows})
    for (const size_t inner : {19, 40})
      if (!SameResults(pair, {rows, 57, inner, -kInfinity, kInfinity}) || !SameResults(pair, {rows, 41, inner, -0.5f, 1})) return false;
  return true;
}

}  // namespace dovetail
