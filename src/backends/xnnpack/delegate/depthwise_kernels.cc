#include "backends/xnnpack/delegate/depthwise_kernels.h"

#include <cstring>
#include <iterator>
#include <vector>

#include "backends/xnnpack/delegate/kernel_calls.h"
#include "backends/xnnpack/delegate/kernel_samples.h"
#include "backends/xnnpack/delegate/kernel_table.h"

#ifdef DOVETAIL_XNNPACK_DEPTHWISE_KERNELS
// GCC 12 takes the intrinsics' undefined vectors for mistakes (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

// Of the library, whose headers do not have them; CMakeLists.txt makes sure that they can be linked.
extern "C" {
dovetail::DepthwiseKernel xnn_qs8_qc8w_dwconv_minmax_fp32_ukernel_9p32c__avx512skx_mul32;
dovetail::DepthwiseKernel xnn_qs8_qc8w_dwconv_minmax_fp32_ukernel_25p32c__avx512skx_mul32;
const void* xnn_init_qs8_qc8w_dwconv_config();
}
#endif

namespace dovetail {
namespace {

// Weights are in blocks of 32 channels: biases (int32), the taps (int8), scales (float).
constexpr size_t kBlock = 32;
constexpr size_t BlockBytes(size_t taps) { return kBlock * (taps + sizeof(int32_t) + sizeof(float)); }

}  // namespace

#ifdef DOVETAIL_XNNPACK_DEPTHWISE_KERNELS
namespace {

#define DT_INLINE DT_VNNI __attribute__((always_inline)) static inline

// What is called alike for all widths of vectors: `p` begins the intrinsics' names, `n` is the number of bits.
#define DT_VECTOR(p, n, mask_type, float_type)                                                                             \
  using Int = __m##n##i;                                                                                                   \
  using Float = float_type;                                                                                                \
  static constexpr size_t kChannels = (n) / 8;                                                                             \
  DT_INLINE Int Load(const void* from) { return p##_loadu_si##n(static_cast<const Int*>(from)); }                          \
  DT_INLINE Int Load(uint64_t mask, const void* from) { return p##_maskz_loadu_epi8(static_cast<mask_type>(mask), from); } \
  DT_INLINE void Store(void* to, Int v) { p##_storeu_si##n(static_cast<Int*>(to), v); }                                    \
  DT_INLINE void Store(void* to, uint64_t mask, Int v) { p##_mask_storeu_epi8(to, static_cast<mask_type>(mask), v); }      \
  DT_INLINE Int All8(int x) { return p##_set1_epi8(static_cast<char>(x)); }                                                \
  DT_INLINE Int All16(int16_t x) { return p##_set1_epi16(x); }                                                             \
  DT_INLINE Float All(float x) { return p##_set1_ps(x); }                                                                  \
  DT_INLINE Int Xor(Int a, Int b) { return p##_xor_si##n(a, b); }                                                          \
  DT_INLINE Int Low8(Int a, Int b) { return p##_unpacklo_epi8(a, b); }                                                     \
  DT_INLINE Int High8(Int a, Int b) { return p##_unpackhi_epi8(a, b); }                                                    \
  DT_INLINE Int Low16(Int a, Int b) { return p##_unpacklo_epi16(a, b); }                                                   \
  DT_INLINE Int High16(Int a, Int b) { return p##_unpackhi_epi16(a, b); }                                                  \
  DT_INLINE Int Dot(Int sum, Int a, Int b) { return p##_dpbusd_epi32(sum, a, b); }                                         \
  DT_INLINE Int Subtract(Int a, Int b) { return p##_sub_epi32(a, b); }                                                     \
  DT_INLINE Int Scaled(Int sum, Int scale, Float max) {                                                                    \
    return p##_cvtps_epi32(p##_min_ps(p##_mul_ps(p##_cvtepi32_ps(sum), Bits(scale)), max));                                \
  }                                                                                                                        \
  DT_INLINE Int Narrow16(Int a, Int b, Int plus) { return p##_adds_epi16(p##_packs_epi32(a, b), plus); }                   \
  DT_INLINE Int Narrow8(Int a, Int b, Int min) { return p##_max_epi8(p##_packs_epi16(a, b), min); }

// Int8 of 16 channels lie in each 128 bits of a vector; their int32 are in four vectors, of which the first has four of each 16 channels, and so on.
// FromLanes loads one of those from where they lie in order, `block` bytes from one 32 channels to the next.
struct Xmm {
  DT_INLINE __m128 Bits(__m128i v) { return _mm_castsi128_ps(v); }
  DT_VECTOR(_mm, 128, __mmask16, __m128)
  DT_INLINE Int FromLanes(const char* from, size_t) { return Load(from); }
  DT_INLINE Int FromBlocks(const char* from, size_t) { return Load(from); }
};
struct Ymm {
  DT_INLINE __m256 Bits(__m256i v) { return _mm256_castsi256_ps(v); }
  DT_VECTOR(_mm256, 256, __mmask32, __m256)
  DT_INLINE Int FromLanes(const char* from, size_t) { return _mm256_inserti128_si256(_mm256_castsi128_si256(Xmm::Load(from)), Xmm::Load(from + 64), 1); }
  DT_INLINE Int FromBlocks(const char* from, size_t) { return Load(from); }
};
struct Zmm {
  DT_INLINE __m512 Bits(__m512i v) { return _mm512_castsi512_ps(v); }
  DT_VECTOR(_mm512, 512, __mmask64, __m512)
  DT_INLINE Int FromLanes(const char* from, size_t block) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(Ymm::FromLanes(from, block)), Ymm::FromLanes(from + block, block), 1);
  }
  DT_INLINE Int FromBlocks(const char* from, size_t block) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(Ymm::Load(from)), Ymm::Load(from + block), 1);
  }
};

// The bytes of four taps beside each other, channel by channel.
template <class V>
DT_INLINE void Interleave(typename V::Int a, typename V::Int b, typename V::Int c, typename V::Int d, typename V::Int (&out)[4]) {
  const typename V::Int low = V::Low8(a, b), low2 = V::Low8(c, d), high = V::High8(a, b), high2 = V::High8(c, d);
  out[0] = V::Low16(low, low2);
  out[1] = V::High16(low, low2);
  out[2] = V::Low16(high, high2);
  out[3] = V::High16(high, high2);
}

// A row of outputs.
struct Row {
  size_t width;
  const int8_t** input;
  int8_t* output;
  intptr_t input_stride;
  size_t output_stride, input_offset;
  const int8_t* zero;
  ByteRange range;
};

// Those of the channels in one vector from `channel` on. Outputs have `columns` columns of `rows` taps, of which the first `slide` are not the next
// output's; each column is added to all the sums that it is part of.
template <class V, size_t rows, size_t columns, size_t slide, bool masked>
DT_VNNI void Channels(const Row& row, const char* weights, size_t channel, [[maybe_unused]] uint64_t mask) {
  using Int = typename V::Int;
  constexpr size_t quads = (rows + 3) / 4, sums = (columns + slide - 1) / slide, block = BlockBytes(rows * columns);
  const Int to_unsigned = V::All8(0x80), min = V::All8(row.range.min), zero_point = V::All16(row.range.zero_point);
  const typename V::Float max = V::All(static_cast<float>(row.range.max - row.range.zero_point));
  Int w[columns][quads][4], bias[4], scale[4];
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    bias[i] = V::FromLanes(weights + 16 * i, block);
    scale[i] = V::FromLanes(weights + block - kBlock * sizeof(float) + 16 * i, block);
  }
#pragma GCC unroll 8
  for (size_t c = 0; c < columns; ++c) {
#pragma GCC unroll 2
    for (size_t q = 0; q < quads; ++q) {
      Int tap[4];
#pragma GCC unroll 4
      for (size_t r = 0; r < 4; ++r)
        tap[r] = q * 4 + r < rows ? V::FromBlocks(weights + kBlock * (sizeof(int32_t) + c * rows + q * 4 + r), block) : V::All8(0);
      Interleave<V>(tap[0], tap[1], tap[2], tap[3], w[c][q]);
      // Inputs are moved to the unsigned range; here is what that adds to sums.
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) bias[i] = V::Subtract(bias[i], V::Dot(V::All8(0), to_unsigned, w[c][q][i]));
    }
  }
  Int sum[sums][4];
#pragma GCC unroll 8
  for (size_t k = 0; k < sums; ++k)
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) sum[k][i] = bias[i];
  const size_t steps = row.width + sums - 1;
  const int8_t** input = row.input;
  int8_t* output = row.output + channel;
  const size_t offset = row.input_offset + channel;
  for (size_t step = 0; step < steps; ++step) {
#pragma GCC unroll 8
    for (size_t c = 0; c < slide; ++c) {
      // After the last output's last column there are no pointers.
      if (c > (columns - 1) % slide && step + 1 == steps) break;
#pragma GCC unroll 2
      for (size_t q = 0; q < quads; ++q) {
        Int tap[4];
#pragma GCC unroll 4
        for (size_t r = 0; r < 4; ++r) {
          if (q * 4 + r >= rows) {
            tap[r] = tap[r == 3 ? 2 : 0];
            continue;
          }
          const int8_t* from = input[c * rows + q * 4 + r];
          from += from == row.zero ? channel : offset;
          if constexpr (masked) tap[r] = V::Xor(V::Load(mask, from), to_unsigned);
          else tap[r] = V::Xor(V::Load(from), to_unsigned);
        }
        Int bytes[4];
        Interleave<V>(tap[0], tap[1], tap[2], tap[3], bytes);
#pragma GCC unroll 8
        for (size_t k = 0; k < sums; ++k) {
          if (c + k * slide >= columns) continue;
#pragma GCC unroll 4
          for (size_t i = 0; i < 4; ++i) sum[k][i] = V::Dot(sum[k][i], bytes[i], w[c + k * slide][q][i]);
        }
      }
    }
    input = reinterpret_cast<const int8_t**>(reinterpret_cast<char*>(input) + row.input_stride);
    if (step + 1 >= sums) {
      const auto& s = sum[sums - 1];
      const Int first = V::Narrow16(V::Scaled(s[0], scale[0], max), V::Scaled(s[1], scale[1], max), zero_point);
      const Int second = V::Narrow16(V::Scaled(s[2], scale[2], max), V::Scaled(s[3], scale[3], max), zero_point);
      if constexpr (masked) V::Store(output, mask, V::Narrow8(first, second, min));
      else V::Store(output, V::Narrow8(first, second, min));
      output += row.output_stride;
    }
#pragma GCC unroll 8
    for (size_t k = sums - 1; k > 0; --k)
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) sum[k][i] = sum[k - 1][i];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) sum[0][i] = bias[i];
  }
}

template <size_t rows, size_t columns, size_t slide>
void AllChannels(const Row& row, const char* weights, size_t channels) {
  constexpr size_t block = BlockBytes(rows * columns);
  size_t c = 0;
  for (; channels - c >= 64; c += 64, weights += 2 * block) Channels<Zmm, rows, columns, slide, false>(row, weights, c, 0);
  if (channels - c >= 32) {
    Channels<Ymm, rows, columns, slide, false>(row, weights, c, 0);
    c += 32, weights += block;
  }
  const size_t rest = channels - c;
  if (rest == 0) return;
  const uint64_t mask = (uint64_t{1} << rest) - 1;
  if (rest > 16) Channels<Ymm, rows, columns, slide, true>(row, weights, c, mask);
  else Channels<Xmm, rows, columns, slide, true>(row, weights, c, mask);
}

template <size_t rows, size_t columns>
void Depthwise(size_t channels, size_t width, const int8_t** input, const void* weights, int8_t* output, intptr_t input_stride, size_t output_increment,
               size_t input_offset, const int8_t* zero, const void* params) {
  const Row row{width, input, output, input_stride, channels + output_increment, input_offset, zero, *static_cast<const ByteRange*>(params)};
  const char* w = static_cast<const char*>(weights);
  // Where the next output's pointers begin among this one's, whatever the kernel's shape.
  constexpr intptr_t column = rows * sizeof(void*);
  if (input_stride == column) AllChannels<rows, columns, 1>(row, w, channels);
  else if (input_stride == 2 * column) AllChannels<rows, columns, 2>(row, w, channels);
  else AllChannels<rows, columns, columns>(row, w, channels);
}

constexpr DepthwiseKernelPair kPairs[] = {
    {"qs8_qc8w_9", xnn_qs8_qc8w_dwconv_minmax_fp32_ukernel_9p32c__avx512skx_mul32, Depthwise<3, 3>, 9, 3},
    {"qs8_qc8w_25", xnn_qs8_qc8w_dwconv_minmax_fp32_ukernel_25p32c__avx512skx_mul32, Depthwise<5, 5>, 25, 5},
};

// The table has three records (for 3, 9 and 25 taps) of at least four words in every version that has these kernels.
constexpr size_t kSearchedWords = 12;

}  // namespace

const DepthwiseKernelPair* DepthwiseKernels(size_t* count) {
  const bool has = HasVnni();
  *count = has ? std::size(kPairs) : 0;
  return has ? kPairs : nullptr;
}

DepthwiseKernel** FindDepthwiseKernel(DepthwiseKernel* kernel) { return FindKernel(xnn_init_qs8_qc8w_dwconv_config(), kSearchedWords, kernel); }

void UseDepthwiseKernels() {
  size_t count = 0;
  const DepthwiseKernelPair* pairs = DepthwiseKernels(&count);
  for (size_t i = 0; i < count; ++i)
    if (DepthwiseKernel** at = FindDepthwiseKernel(pairs[i].theirs); at && SameResults(pairs[i])) *at = pairs[i].ours;
}
#else
const DepthwiseKernelPair* DepthwiseKernels(size_t* count) {
  *count = 0;
  return nullptr;
}
DepthwiseKernel** FindDepthwiseKernel(DepthwiseKernel*) { return nullptr; }
void UseDepthwiseKernels() {}
#endif

bool SameResults(const DepthwiseKernelPair& pair, const DepthwiseSample& sample) {
  const size_t channels = sample.channels, width = sample.width, stride = sample.stride;
  SampleNumbers random(sample.seed);
  constexpr size_t kOffset = 5, kIncrement = 3, kPixels = 23, kBeyond = 16;
  // XNNPACK's kernel reads up to 15 bytes beyond the channels.
  std::vector<int8_t> image(kOffset + kPixels * channels + kBeyond), zero(channels + kBeyond);
  for (std::vector<int8_t>* bytes : {&image, &zero}) random.Fill(*bytes);
  std::vector<const int8_t*> pointers((width - 1) * stride + pair.taps);
  for (const int8_t*& p : pointers) p = random.Next() % 5 == 0 ? zero.data() : image.data() + random.Next() % kPixels * channels;
  const size_t blocks = (channels + kBlock - 1) / kBlock, block = BlockBytes(pair.taps);
  std::vector<std::byte> memory(blocks * block + kPackedAlignment);
  std::byte* const weights = PackedStart(memory);
  for (std::byte* w = weights; w != weights + blocks * block; w += block) {
    for (size_t i = 0; i < kBlock * (sizeof(int32_t) + pair.taps); ++i) w[i] = static_cast<std::byte>(random.Next());
    for (size_t i = 0; i < kBlock; ++i) {
      // Some are so large that sums leave the range of int32.
      const int32_t bias = static_cast<int32_t>(random.Next() % 60001) - 30000;
      const float scale = static_cast<float>(random.Next() % 1000 + 1) * (random.Next() % 16 == 0 ? 1e3f : 1e-5f);
      std::memcpy(w + i * sizeof(bias), &bias, sizeof(bias));
      std::memcpy(w + block - kBlock * sizeof(scale) + i * sizeof(scale), &scale, sizeof(scale));
    }
  }
  for (const ByteRange range : {ByteRange{0, -128, 127}, ByteRange{-128, -128, 90}, ByteRange{11, -60, 77}}) {
    std::vector<int8_t> theirs(width * (channels + kIncrement), 1), ours = theirs;
    const auto call = [&](DepthwiseKernel* kernel, int8_t* output) {
      kernel(channels, width, pointers.data(), weights, output, static_cast<intptr_t>(stride * sizeof(void*)), kIncrement, kOffset, zero.data(), &range);
    };
    call(pair.theirs, theirs.data());
    call(pair.ours, ours.data());
    if (theirs != ours) return false;
  }
  return true;
}

bool SameResults(const DepthwiseKernelPair& pair) {
  // All widths of vectors, whole and in part.
  for (const size_t channels : {size_t{7}, size_t{87}, size_t{111}})
    for (const size_t stride : {pair.column, 2 * pair.column, pair.taps})
      if (!SameResults(pair, {channels, 4, stride})) return false;
  return true;
}

}  // namespace dovetail
