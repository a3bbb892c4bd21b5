#include "backends/xnnpack/delegate/block_tiles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "backends/xnnpack/delegate/kernel_calls.h"
#include "backends/xnnpack/delegate/kernel_samples.h"
#include "backends/xnnpack/delegate/kernel_table.h"

#ifdef DOVETAIL_XNNPACK_BLOCK_TILES
// GCC 12 takes the intrinsics' undefined vectors for mistakes (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

// Of the library, whose headers do not have them; CMakeLists.txt makes sure that they can be linked.
extern "C" {
dovetail::RowKernel xnn_qd8_f32_qb4w_gemm_minmax_ukernel_8x16c8__avx512vnni_prfm;
const void* xnn_init_qd8_f32_qb4w_gemm_config();
}
#endif

namespace dovetail {
namespace {

constexpr size_t kColumns = 16;    // that weights are packed for
constexpr size_t kStep = 32;       // inner size of a tile; blocks are multiples of it
constexpr size_t kTheirRows = 8;

}  // namespace

#ifdef DOVETAIL_XNNPACK_BLOCK_TILES
namespace {

#define DT_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

constexpr size_t kTileRows = 16;
constexpr size_t kChunk = 32;      // steps whose weights are widened at a time
constexpr size_t kStepBytes = kStep * kColumns;

// What the instruction ldtilecfg reads.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[8] = {}, reserved2[8] = {};
  uint8_t rows[8] = {}, reserved3[8] = {};
};

// GCC 12's intrinsics do not tell the compiler which memory they read.
void SetTileShapes(const TileShapes& shapes) { __asm__ volatile("ldtilecfg %0" ::"m"(shapes)); }
void ReleaseTiles() { __asm__ volatile("tilerelease" ::); }
template <int tile>
inline void LoadTile(const void* from, size_t stride) {
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
inline void StoreTile(void* to, size_t stride) {
  __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
inline void ZeroTile() {
  __asm__ volatile("tilezero %%tmm%c0" ::"i"(tile));
}
// Bytes of `a` are unsigned, of `b` signed.
template <int sums, int a, int b>
inline void AddProducts() {
  __asm__ volatile("tdpbusd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(a), "i"(b));
}
// Sums and inputs of the first half of the rows, and of the second, which may be fewer; all share the weights.
constexpr int kSums[] = {0, 1}, kInputs[] = {4, 5}, kWeights = 6;

// 16 columns of 32 inner indices, as they are packed (two times 128 bytes), to bytes that are 16 times the weights: for each four inner indices, four bytes
// of each column.
DT_AVX512 inline void Widen(const char* from, char* to) {
  const __m512i halves = _mm512_set1_epi8(static_cast<char>(0xF0));
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0), odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
  for (size_t i = 0; i < 2; ++i) {
    const __m512i first = _mm512_loadu_si512(from + 128 * i), second = _mm512_loadu_si512(from + 128 * i + 64);
    const __m512i low = _mm512_and_si512(_mm512_slli_epi32(first, 4), halves), low2 = _mm512_and_si512(_mm512_slli_epi32(second, 4), halves);
    const __m512i high = _mm512_and_si512(first, halves), high2 = _mm512_and_si512(second, halves);
    char* const row = to + 256 * i;
    _mm512_store_si512(row, _mm512_permutex2var_epi32(low, even, low2));
    _mm512_store_si512(row + 64, _mm512_permutex2var_epi32(low, odd, low2));
    _mm512_store_si512(row + 128, _mm512_permutex2var_epi32(high, even, high2));
    _mm512_store_si512(row + 192, _mm512_permutex2var_epi32(high, odd, high2));
  }
}

// Adds to the floats of 16 rows and 16 columns what `blocks` blocks of `steps` tiles give; the rows from `used` on are no rows.
template <int half>
DT_AVX512 inline void AddBlocks(size_t blocks, size_t steps, const char* a, size_t a_stride, const char* weights, const __m512* scales, float* sums,
                                size_t used) {
  constexpr size_t rows = kTileRows;
  alignas(64) int32_t products[2][kTileRows * kColumns];
  if (used < rows) std::memset(products, 0, sizeof(products));
  __m512 sum[rows];
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; ++r) sum[r] = _mm512_load_ps(sums + r * kColumns);
  const auto multiply = [&](size_t b) __attribute__((always_inline)) {
    ZeroTile<kSums[half]>();
    for (size_t s = b * steps; s < (b + 1) * steps; ++s) {
      LoadTile<kWeights>(weights + s * kStepBytes, 64);
      LoadTile<kInputs[half]>(a + s * kStep, a_stride);
      AddProducts<kSums[half], kInputs[half], kWeights>();
    }
    StoreTile<kSums[half]>(products[b % 2], 64);
  };
  multiply(0);
  for (size_t b = 0; b < blocks; ++b) {
    if (b + 1 < blocks) multiply(b + 1);
    const int32_t* const p = products[b % 2];
#pragma GCC unroll 16
    for (size_t r = 0; r < rows; ++r) sum[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(p + r * kColumns)), scales[b], sum[r]);
  }
#pragma GCC unroll 16
  for (size_t r = 0; r < rows; ++r) _mm512_store_ps(sums + r * kColumns, sum[r]);
}

DT_AVX512 inline __m512 Scales(const char* from) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from))), 16));
}

DT_AVX512 void BlockTile(size_t rows, size_t columns, size_t inner, const int8_t* a, size_t a_stride, const void* weights, float* c, size_t c_row_stride,
                         size_t c_column_stride, const void* params, const void* quantization) {
  const BlockRange range = *static_cast<const BlockRange*>(params);
  const auto* const q = static_cast<const RowQuantization*>(quantization);
  const __m512 min = _mm512_set1_ps(range.min), max = _mm512_set1_ps(range.max);
  const size_t blocks = inner / range.block, steps = range.block / kStep, at_once = std::max<size_t>(kChunk / steps, 1);
  const size_t first = std::min(rows, kTileRows), second = rows - first;

  // Inputs moved to the unsigned range, as XNNPACK's sums of weights expect.
  thread_local std::vector<char> inputs, widened;
  inputs.resize(kBlockTileRows * inner + 64);
  widened.resize(at_once * steps * kStepBytes + 64);
  char *const x = PackedStart(inputs), *const bytes = PackedStart(widened);
  const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
  for (size_t r = 0; r < rows; ++r)
    for (size_t k = 0; k < inner; k += kStep) {
      const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a + r * a_stride + k));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(x + r * inner + k), _mm256_xor_si256(v, flip));
    }

  TileShapes shapes;
  for (const size_t half : {0, 1}) {
    shapes.rows[kSums[half]] = shapes.rows[kInputs[half]] = static_cast<uint8_t>(half ? std::max<size_t>(second, 1) : first);
    shapes.row_bytes[kSums[half]] = 4 * kColumns;
    shapes.row_bytes[kInputs[half]] = kStep;
  }
  shapes.rows[kWeights] = kStep / 4;
  shapes.row_bytes[kWeights] = 4 * kColumns;
  SetTileShapes(shapes);

  alignas(64) float sums[kBlockTileRows * kColumns] = {};
  alignas(64) __m512 scales[kChunk];
  const char* w = static_cast<const char*>(weights);
  for (;;) {
    const __m512 of_weights = _mm512_loadu_ps(w);
    w += 4 * kColumns;
    for (size_t r = 0; r < rows; ++r) {
      const __m512 zero_point = _mm512_set1_ps(static_cast<float>(q[r].zero_point) + 128);
      _mm512_store_ps(sums + r * kColumns, _mm512_mul_round_ps(zero_point, of_weights, _MM_FROUND_CUR_DIRECTION));
    }
    for (size_t b = 0; b < blocks; b += at_once) {
      const size_t count = std::min(at_once, blocks - b);
      for (size_t i = 0; i < count; ++i) {
        for (size_t s = 0; s < steps; ++s, w += kStepBytes / 2) Widen(w, bytes + (i * steps + s) * kStepBytes);
        scales[i] = Scales(w);
        w += 2 * kColumns;
      }
      const char* const inputs_here = x + b * range.block;
      AddBlocks<0>(count, steps, inputs_here, inner, bytes, scales, sums, first);
      if (second > 0) AddBlocks<1>(count, steps, inputs_here + kTileRows * inner, inner, bytes, scales, sums + kTileRows * kColumns, second);
    }
    const __m512 bias = _mm512_loadu_ps(w);
    w += 4 * kColumns;
    const __mmask16 mask = columns >= kColumns ? __mmask16{0xFFFF} : static_cast<__mmask16>((1u << columns) - 1);
    for (size_t r = 0; r < rows; ++r) {
      // With the rounding spelled, the compiler does not make the two one operation.
      const __m512 scaled = _mm512_mul_round_ps(_mm512_load_ps(sums + r * kColumns), _mm512_set1_ps(q[r].scale), _MM_FROUND_CUR_DIRECTION);
      const __m512 v = _mm512_min_ps(_mm512_max_ps(_mm512_add_ps(scaled, bias), min), max);
      _mm512_mask_storeu_ps(reinterpret_cast<char*>(c) + r * c_row_stride, mask, v);
    }
    if (columns <= kColumns) break;
    columns -= kColumns;
    c = reinterpret_cast<float*>(reinterpret_cast<char*>(c) + c_column_stride);
  }
  ReleaseTiles();
}

bool HasAmx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & kTile) == 0 || (d & kInt8) == 0) return false;
  if (!__builtin_cpu_supports("avx512bw") || !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")) return false;
  // The system keeps the tiles of processes that ask for it.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

BlockTiles FindBlockTiles() {
  static const bool has = HasAmx();
  return has ? BlockTiles{xnn_qd8_f32_qb4w_gemm_minmax_ukernel_8x16c8__avx512vnni_prfm, BlockTile} : BlockTiles{nullptr, nullptr};
}

void UseBlockTiles() {
  const BlockTiles tiles = FindBlockTiles();
  constexpr size_t kLog2Inner = 3;
  if (!tiles.ours || !SameResults(tiles)) return;
  AddTile(xnn_init_qd8_f32_qb4w_gemm_config(), tiles.theirs, kTheirRows, kColumns, kLog2Inner, tiles.ours, kBlockTileRows);
}
#else
BlockTiles FindBlockTiles() { return {nullptr, nullptr}; }
void UseBlockTiles() {}
#endif

bool SameResults(const BlockTiles& tiles, const BlockSample& sample) {
  const size_t rows = sample.rows, columns = sample.columns, inner = sample.inner, block = sample.block;
  SampleNumbers random(sample.seed);
  const size_t stride = inner + 32;
  std::vector<int8_t> a(rows * stride + 64);
  random.Fill(a);
  PackedSample packed;
  for (size_t g = 0; g < (columns + kColumns - 1) / kColumns; ++g) packed.PutBlocks(random, kColumns, inner, block);
  const std::byte* const weights = packed.Start();
  // XNNPACK's kernel computes the last row again for those that its tile lacks.
  std::vector<RowQuantization> q(rows + kTheirRows);
  for (size_t r = 0; r < q.size(); ++r)
    q[r] = r < rows ? RowQuantization{static_cast<int32_t>(random.Next() % 256) - 128, static_cast<float>(random.Next() % 1000 + 1) * 1e-5f} : q[rows - 1];
  const size_t c_stride = columns + 3;
  for (const float limit : {INFINITY, 50.0f}) {
    const BlockRange range{-limit, limit, block};
    std::vector<float> theirs(rows * c_stride, 1), ours(rows * c_stride, 1);
    for (size_t r = 0; r < rows; r += kTheirRows)
      tiles.theirs(std::min(rows - r, kTheirRows), columns, inner, a.data() + r * stride, stride, weights, theirs.data() + r * c_stride, 4 * c_stride, 64,
                   &range, &q[r]);
    tiles.ours(rows, columns, inner, a.data(), stride, weights, ours.data(), 4 * c_stride, 64, &range, q.data());
    if (std::memcmp(theirs.data(), ours.data(), theirs.size() * sizeof(float)) != 0) return false;
  }
  return true;
}

bool SameResults(const BlockTiles& tiles) {
  constexpr std::array<BlockSample, 6> samples = {
      {{32, 40, 64, 32}, {17, 16, 32, 32}, {16, 7, 96, 32}, {5, 33, 128, 64}, {32, 16, 256, 128}, {31, 17, 1088, 32}}};
  return std::all_of(samples.begin(), samples.end(), [&](const BlockSample& s) { return SameResults(tiles, s); });
}

}  // namespace dovetail
