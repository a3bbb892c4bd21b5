#include "kernels/quantized_weights.h"

#include <type_traits>

#include "kernels/simd.h"

namespace dovetail {
namespace {

using simd::Floats;
using simd::Ints;
using simd::kLanes;
using Words = uint32_t __attribute__((vector_size(kLanes * 4)));

constexpr int64_t kGroup = 8 * kLanes;

DT_VECTORIZED void NibblesToIntegers(const uint8_t* bytes, int64_t n, int16_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    out[2 * i] = static_cast<int16_t>((bytes[i] & 15) - 8);
    out[2 * i + 1] = static_cast<int16_t>((bytes[i] >> 4) - 8);
  }
}
DT_VECTORIZED void NibblesToFloats(const uint8_t* bytes, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    out[2 * i] = static_cast<float>((bytes[i] & 15) - 8);
    out[2 * i + 1] = static_cast<float>((bytes[i] >> 4) - 8);
  }
}
DT_VECTORIZED void BytesToFloats(const int8_t* bytes, int64_t n, float scale, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(bytes[i]) * scale;
}
DT_VECTORIZED void Scale(float* x, int64_t n, float scale) {
  for (int64_t i = 0; i < n; ++i) x[i] *= scale;
}

// R rows of one group: sums += products.
template <int R>
DT_INLINE void AddGroup(const Words* words, const float* x, Floats* evens, Floats* odds) {
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const Floats xs = simd::LoadFloats(x + j * kLanes);
    simd::KeepLoaded();
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const Words nibbles = j < 7 ? words[r] & (15u << 4 * j) : words[r] >> 28;  // the highest would be a sign
      (j % 2 ? odds : evens)[r] += xs * __builtin_convertvector(reinterpret_cast<Ints>(nibbles), Floats);
    }
  }
}

// A group of two blocks has the first one's scale in the first half of its lanes, the other's in the second. (Two bf16 as one number: GCC
// makes better code of that than of two floats.)
DT_INLINE Floats ScalesOf(uint32_t pair) {
  Words first = {}, second = {};
  for (int64_t i = 0; i < kLanes; ++i) (i < kLanes / 2 ? first : second)[i] = 0xffff0000;
  const Words both = Words{} + pair;
  return reinterpret_cast<Floats>(((both << 16) & first) | (both & second));
}

// R rows, whose blocks are half a group; the last group may be a half one.
template <int R>
DT_INLINE void HalvesTile(const NibbleRows& w, const GroupedRow& row, int64_t n, float* out) {
  const int64_t row_bytes = w.columns / 2;
  const uint8_t* bytes = w.bytes + n * row_bytes;
  const uint16_t* scales = w.scales + n * w.blocks;
  Floats totals[R] = {};
  const auto add = [&](int64_t k, auto bytes_there) __attribute__((always_inline)) {
    constexpr size_t kBytes = decltype(bytes_there)::value;
    Words words[R];
    Floats evens[R], odds[R];
    const Floats start = simd::LoadFloats(row.starts + k / 8);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      if constexpr (kBytes < sizeof(Words)) words[r] = Words{};
      std::memcpy(&words[r], bytes + r * row_bytes + k / 2, kBytes);
      evens[r] = start;
      odds[r] = Floats{};
    }
    AddGroup<R>(words, row.x + k, evens, odds);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      uint32_t pair = 0;
      std::memcpy(&pair, scales + r * w.blocks + k / (kGroup / 2), kBytes < sizeof(Words) ? 2 : 4);
      totals[r] += (evens[r] + odds[r]) * ScalesOf(pair);
    }
  };
  int64_t k = 0;
  for (; k + kGroup <= w.columns; k += kGroup) add(k, std::integral_constant<size_t, sizeof(Words)>());
  if (k < w.columns) add(k, std::integral_constant<size_t, sizeof(Words) / 2>());
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) out[n + r] = simd::Sum(totals[r]);
}

// R rows, whose blocks are whole groups.
template <int R>
DT_INLINE void BlocksTile(const NibbleRows& w, const GroupedRow& row, int64_t n, float* out) {
  const int64_t row_bytes = w.columns / 2, block = w.columns / w.blocks;
  const uint8_t* bytes = w.bytes + n * row_bytes;
  const uint16_t* scales = w.scales + n * w.blocks;
  Floats totals[R] = {};
  for (int64_t b = 0; b < w.blocks; ++b) {
    Floats evens[R] = {}, odds[R] = {};
    for (int64_t k = b * block; k < (b + 1) * block; k += kGroup) {
      Words words[R];
      const Floats start = simd::LoadFloats(row.starts + k / 8);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        std::memcpy(&words[r], bytes + r * row_bytes + k / 2, sizeof(Words));
        evens[r] += start;
      }
      AddGroup<R>(words, row.x + k, evens, odds);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) totals[r] += (evens[r] + odds[r]) * BFloat16ToFloat(scales[r * w.blocks + b]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) out[n + r] = simd::Sum(totals[r]);
}

}  // namespace

void UnpackIntegers(const QuantizedMatrix& w, int64_t n, int64_t begin, int64_t count, int16_t* out) {
  if (w.nibbles()) return NibblesToIntegers(w.weight.as<uint8_t>() + n * w.weight.sizes[1] + begin / 2, count / 2, out);
  const int8_t* row = w.weight.as<int8_t>() + n * w.weight.sizes[1] + begin;
  std::copy(row, row + count, out);
}

void UnpackFloats(const QuantizedMatrix& w, int64_t n, int64_t begin, int64_t count, float* out) {
  if (!w.nibbles()) return BytesToFloats(w.weight.as<int8_t>() + n * w.weight.sizes[1] + begin, count, w.scale.as<float>()[n], out);
  NibblesToFloats(w.weight.as<uint8_t>() + n * w.weight.sizes[1] + begin / 2, count / 2, out);
  const int64_t block = w.block();
  for (int64_t k = begin; k < begin + count;) {
    const int64_t end = std::min(begin + count, (k / block + 1) * block);
    Scale(out + (k - begin), end - k, w.scale_of(n, k));
    k = end;
  }
}

bool FitsGroups(int64_t block) { return block > 0 && (block % kGroup == 0 || 2 * block == kGroup); }
int64_t GroupedSize(int64_t columns) { return (columns + kGroup - 1) / kGroup * kGroup; }
int64_t StartsSize(int64_t columns) { return GroupedSize(columns) / 8; }

void Group(const float* from, int64_t columns, float* x, float* starts) {
  for (int64_t k = 0; k < columns; k += kGroup) {
    for (int64_t i = 0; i < kLanes; ++i) {
      float sum = 0, worth = 1;
      for (int64_t j = 0; j < 8; ++j) {
        const float element = k + 8 * i + j < columns ? from[k + 8 * i + j] : 0;
        x[k + j * kLanes + i] = element * worth;
        sum += element;
        if (j < 6) worth /= 16;
        else worth = 1;
      }
      starts[k / 8 + i] = -8 * sum;
    }
  }
}

DT_VECTORIZED void MultiplyNibbles(const NibbleRows& w, const GroupedRow& row, int64_t rows, float* out) {
  int64_t n = 0;
  if (w.columns / w.blocks < kGroup) {
    for (; n + 4 <= rows; n += 4) HalvesTile<4>(w, row, n, out);
    for (; n < rows; ++n) HalvesTile<1>(w, row, n, out);
  } else {
    for (; n + 4 <= rows; n += 4) BlocksTile<4>(w, row, n, out);
    for (; n < rows; ++n) BlocksTile<1>(w, row, n, out);
  }
}

// Plain loops, which GCC makes multiply-and-add of pairs (pmaddwd).
DT_VECTORIZED void DotIntegers(const int16_t* a, int64_t a_stride, int64_t rows, const int16_t* b, int64_t count, int32_t* out) {
  for (int64_t r = 0; r < rows; ++r) {
    const int16_t* row = a + r * a_stride;
    int32_t sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += int32_t{row[k]} * b[k];
    out[r] = sum;
  }
}

}  // namespace dovetail
