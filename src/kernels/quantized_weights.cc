#include "kernels/quantized_weights.h"

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

// kHalves: a block is half a group, which then has two scales.
template <int R, bool kHalves>
DT_INLINE void NibbleTile(const NibbleRows& w, const GroupedRow& row, int64_t n, float* out) {
  const int64_t row_bytes = w.columns / 2, block = w.columns / w.blocks, step = kHalves ? kGroup : block;
  const uint8_t* bytes = w.bytes + n * row_bytes;
  const uint16_t* scales = w.scales + n * w.blocks;
  Floats totals[R] = {};
  for (int64_t begin = 0, b = 0; begin < w.columns; begin += step, b += kHalves ? 2 : 1) {
    Floats evens[R] = {}, odds[R] = {};
    for (int64_t k = begin; k < begin + step; k += kGroup) {
      Words words[R] = {};
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const uint8_t* from = bytes + r * row_bytes + k / 2;
        if (!kHalves || k + kGroup <= w.columns) std::memcpy(&words[r], from, sizeof(Words));
        else std::memcpy(&words[r], from, sizeof(Words) / 2);
      }
      const Floats start = simd::LoadFloats(row.starts + k / 8);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) evens[r] += start;
      AddGroup<R>(words, row.x + k, evens, odds);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const float scale = BFloat16ToFloat(scales[r * w.blocks + b]);
      if constexpr (kHalves) {
        const float second = b + 1 < w.blocks ? BFloat16ToFloat(scales[r * w.blocks + b + 1]) : 0;
        totals[r] += (evens[r] + odds[r]) * simd::Halves(scale, second);
      } else {
        totals[r] += (evens[r] + odds[r]) * scale;
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) out[n + r] = simd::Sum(totals[r]);
}

template <bool kHalves>
DT_INLINE void NibbleTiles(const NibbleRows& w, const GroupedRow& row, int64_t rows, float* out) {
  int64_t n = 0;
  for (; n + 4 <= rows; n += 4) NibbleTile<4, kHalves>(w, row, n, out);
  for (; n < rows; ++n) NibbleTile<1, kHalves>(w, row, n, out);
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
  if (w.columns / w.blocks < kGroup) NibbleTiles<true>(w, row, rows, out);
  else NibbleTiles<false>(w, row, rows, out);
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
