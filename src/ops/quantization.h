// The arithmetic of quantized tensors, for reference kernels and for whoever makes such data.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/tensor_type.h"
#include "ops/dispatch.h"

namespace dovetail {

struct IntegerRange {
  int32_t min, max;
};
// Of i8, u8, i16 and u16; other types have that of i32.
inline IntegerRange RangeOf(DType t) {
  switch (t) {
    case DType::kI8: return {-128, 127};
    case DType::kU8: return {0, 255};
    case DType::kI16: return {-32768, 32767};
    case DType::kU16: return {0, 65535};
    default: return {INT32_MIN, INT32_MAX};
  }
}

// Real numbers with low <= 0 <= high.
struct ValueRange {
  float low = 0, high = 0;
  friend bool operator==(const ValueRange&, const ValueRange&) = default;
};
// The real numbers that the lowest and the highest integer stand for.
inline ValueRange RangeOfParams(const QuantParams& params, DType dtype = DType::kI8) {
  const IntegerRange integers = RangeOf(dtype);
  return {static_cast<float>(integers.min - params.zero_point) * params.scale, static_cast<float>(integers.max - params.zero_point) * params.scale};
}

inline float DequantizeElement(int32_t q, float scale, int32_t zero_point) { return static_cast<float>(int64_t{q} - zero_point) * scale; }

// round(x / scale) + zero_point, ties to even, within `range`; where the quotient is NaN, the zero point.
inline int32_t QuantizeElement(float x, float scale, int32_t zero_point, IntegerRange range) {
  const double steps = static_cast<double>(x) / static_cast<double>(scale);
  if (std::isnan(steps)) return zero_point;
  const double q = std::nearbyint(steps) + zero_point;
  return static_cast<int32_t>(std::clamp(q, static_cast<double>(range.min), static_cast<double>(range.max)));
}

// Element i of an integer tensor.
inline void StoreQuantized(const TensorView& to, int64_t i, int32_t q) {
  switch (to.dtype) {
    case DType::kI8: to.as<int8_t>()[i] = static_cast<int8_t>(q); return;
    case DType::kU8: to.as<uint8_t>()[i] = static_cast<uint8_t>(q); return;
    case DType::kI16: to.as<int16_t>()[i] = static_cast<int16_t>(q); return;
    case DType::kU16: to.as<uint16_t>()[i] = static_cast<uint16_t>(q); return;
    default: to.as<int32_t>()[i] = q; return;
  }
}

// The parameters of one row of quantize_dynamic, those of XNNPACK's qd8 (src/xnnpack/quantization.h of 2024-11): the range is widened to hold
// 0, the zero point is computed from that end of the range at which it errs less.
struct RowQuantization {
  float scale;
  int32_t zero_point;
};
RowQuantization AsymmetricRow(float min, float max);

// The scale of a row whose largest magnitude is `most`: most / 127 in 16 significant bits, or 0 where that would be denormal. The largest integer is
// then 127, and products of scale and integers are exact in float, so a row dequantized and quantized again has the same scale and integers.
inline float SymmetricRowScale(float most) {
  const float scale = most / 127;
  if (scale < std::numeric_limits<float>::min()) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(scale);
  return std::bit_cast<float>((bits + 0x7f + ((bits >> 8) & 1)) & ~0xffu);
}

// The integer of element k of a row of 4-bit weights: two to a byte, the even one in the low nibble, 8 standing for zero.
inline int32_t Nibble(const uint8_t* row, int64_t k) { return ((row[k / 2] >> (k % 2 * 4)) & 15) - 8; }

// A matrix of weights with its scales: i8[N,K] with f32[N], or u8[N,K/2] with bf16[N,K/block].
struct QuantizedMatrix {
  const TensorView& weight;
  const TensorView& scale;
  bool nibbles() const { return weight.dtype == DType::kU8; }
  int64_t rows() const { return weight.sizes[0]; }
  int64_t columns() const { return nibbles() ? weight.sizes[1] * 2 : weight.sizes[1]; }
  int64_t block() const { return scale.rank == 2 && scale.sizes[1] > 0 ? columns() / scale.sizes[1] : columns(); }
  int32_t at(int64_t n, int64_t k) const {
    return nibbles() ? Nibble(weight.as<uint8_t>() + n * weight.sizes[1], k) : weight.as<int8_t>()[n * weight.sizes[1] + k];
  }
  float scale_of(int64_t n, int64_t k) const {
    return scale.dtype == DType::kBF16 ? BFloat16ToFloat(scale.as<uint16_t>()[n * scale.sizes[1] + k / block()]) : scale.as<float>()[n];
  }
};

}  // namespace dovetail
