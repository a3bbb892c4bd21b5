// quantize, dequantize and quantize_dynamic.
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"
#include "ops/dispatch.h"
#include "ops/quantization.h"

namespace dovetail::kernels {
namespace {

// QuantizeElement of n elements. In double as there; adding and subtracting 1.5 * 2^52 rounds to an integer, ties to even, whatever is below 2^51.
template <class T>
DT_INLINE void QuantizeTo(const float* x, int64_t n, float scale, int32_t zero_point, T* out) {
  constexpr double kRound = 6755399441055744.0;
  const double divisor = static_cast<double>(scale), low = std::numeric_limits<T>::min() - zero_point, high = std::numeric_limits<T>::max() - zero_point;
  for (int64_t i = 0; i < n; ++i) {
    double q = static_cast<double>(x[i]) / divisor;
    q = q == q ? q : 0;
    q = q < low ? low : q;
    q = q > high ? high : q;
    out[i] = static_cast<T>(static_cast<int32_t>(q + kRound - kRound) + zero_point);
  }
}
DT_VECTORIZED void QuantizeI8(const float* x, int64_t n, float scale, int32_t zero_point, int8_t* out) { QuantizeTo(x, n, scale, zero_point, out); }
DT_VECTORIZED void QuantizeU8(const float* x, int64_t n, float scale, int32_t zero_point, uint8_t* out) { QuantizeTo(x, n, scale, zero_point, out); }
DT_VECTORIZED void QuantizeU16(const float* x, int64_t n, float scale, int32_t zero_point, uint16_t* out) { QuantizeTo(x, n, scale, zero_point, out); }

DT_VECTORIZED void DequantizeI8(const int8_t* q, int64_t n, float scale, int32_t zero_point, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = DequantizeElement(q[i], scale, zero_point);
}
DT_VECTORIZED void DequantizeU8(const uint8_t* q, int64_t n, float scale, int32_t zero_point, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = DequantizeElement(q[i], scale, zero_point);
}
DT_VECTORIZED void DequantizeU16(const uint16_t* q, int64_t n, float scale, int32_t zero_point, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = DequantizeElement(q[i], scale, zero_point);
}

struct Range {
  float min = 0, max = 0;
};
// Of 0 and the elements that are numbers.
DT_VECTORIZED Range RangeOfRow(const float* x, int64_t n) {
  simd::Floats low = {}, high = {};
  const auto take = [&](const simd::Floats& v) __attribute__((always_inline)) {
    low = v < low ? v : low;
    high = v > high ? v : high;
  };
  int64_t i = 0;
  for (; i + simd::kLanes <= n; i += simd::kLanes) take(simd::LoadFloats(x + i));
  if (i < n) take(simd::LoadFirst(x + i, n - i));
  return {-simd::MaxLane(-low), simd::MaxLane(high)};
}

}  // namespace

Status Quantize(const KernelContext& c) {
  const float* x = c.in(0).as<float>();
  const float scale = static_cast<float>(c.attr(0).Number());
  const int32_t zero_point = static_cast<int32_t>(c.attr(1).Int());
  const DType to = c.out().dtype;
  if (to != DType::kI8 && to != DType::kU8 && to != DType::kU16) return GetOp(OpId::kQuantize).reference(c);
  ParallelRanges(c.pool, c.out().numel(), kGrainElements, [&](int64_t begin, int64_t end) {
    if (to == DType::kI8) QuantizeI8(x + begin, end - begin, scale, zero_point, c.out().as<int8_t>() + begin);
    else if (to == DType::kU16) QuantizeU16(x + begin, end - begin, scale, zero_point, c.out().as<uint16_t>() + begin);
    else QuantizeU8(x + begin, end - begin, scale, zero_point, c.out().as<uint8_t>() + begin);
  });
  return OkStatus();
}

Status Dequantize(const KernelContext& c) {
  const float scale = static_cast<float>(c.attr(0).Number());
  const int32_t zero_point = static_cast<int32_t>(c.attr(1).Int());
  const DType from = c.in(0).dtype;
  if (from != DType::kI8 && from != DType::kU8 && from != DType::kU16) return GetOp(OpId::kDequantize).reference(c);
  ParallelRanges(c.pool, c.out().numel(), kGrainElements, [&](int64_t begin, int64_t end) {
    float* out = c.out().as<float>() + begin;
    if (from == DType::kI8) DequantizeI8(c.in(0).as<int8_t>() + begin, end - begin, scale, zero_point, out);
    else if (from == DType::kU16) DequantizeU16(c.in(0).as<uint16_t>() + begin, end - begin, scale, zero_point, out);
    else DequantizeU8(c.in(0).as<uint8_t>() + begin, end - begin, scale, zero_point, out);
  });
  return OkStatus();
}

Status QuantizeDynamic(const KernelContext& c) {
  const int64_t rows = c.out(1).numel(), width = rows ? c.in(0).numel() / rows : 0;
  ParallelRanges(c.pool, rows, GrainOf(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* x = c.in(0).as<float>() + r * width;
      const Range range = RangeOfRow(x, width);
      const RowQuantization q = AsymmetricRow(range.min, range.max);
      c.out(1).as<float>()[r] = q.scale;
      c.out(2).as<int32_t>()[r] = q.zero_point;
      QuantizeI8(x, width, q.scale, q.zero_point, c.out().as<int8_t>() + r * width);
    }
  });
  return OkStatus();
}

}  // namespace dovetail::kernels
