// input @ weight^T + bias with quantized weights: integer products of dynamic rows; of f32 rows, weights become floats in registers for a
// few rows, and else in a buffer that all rows use.
#include "kernels/gemm.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/quantized_weights.h"

namespace dovetail::kernels {
namespace {

enum { kInput, kInputScale, kInputZeroPoint, kWeight, kWeightScale, kBias };

constexpr int64_t kRows = 64;      // of the input, a block
constexpr int64_t kColumns = 16;   // of the result, a block
constexpr int64_t kInner = 512;    // products summed at a time; even
constexpr int64_t kFewRows = 3;    // up to which weights are not unpacked into memory
constexpr int64_t kWeightBytes = 32768;  // of weights, worth waking a thread for

struct Shape {
  explicit Shape(const KernelContext& c) : matrix{c.in(kWeight), c.in(kWeightScale)}, columns(matrix.rows()), inner(matrix.columns()), block(matrix.block()) {
    for (size_t d = 0; d + 1u < c.in(kInput).rank; ++d) rows *= c.in(kInput).sizes[d];
  }
  int64_t blocks() const { return block ? inner / block : 0; }
  int64_t GroupedRowSize() const { return GroupedSize(inner) + StartsSize(inner); }
  bool unpacks_in_registers() const { return rows <= kFewRows && matrix.nibbles() && FitsGroups(block); }

  QuantizedMatrix matrix;
  int64_t rows = 1, columns, inner, block;
};

void FewFloatRows(const KernelContext& c, const Shape& s) {
  const float *x = c.in(kInput).as<float>(), *bias = c.has(kBias) ? c.in(kBias).as<float>() : nullptr;
  float* memory = reinterpret_cast<float*>(c.scratch.data());
  const auto grouped = [&](int64_t r) { return memory + r * s.GroupedRowSize(); };
  for (int64_t r = 0; r < s.rows; ++r) Group(x + r * s.inner, s.inner, grouped(r), grouped(r) + GroupedSize(s.inner));
  const int64_t grain = (GrainOf(s.inner / 2, kWeightBytes) + 3) / 4 * 4;  // rows are read by fours
  ParallelRanges(c.pool, s.columns, grain, [&](int64_t begin, int64_t end) {
    const NibbleRows weight{c.in(kWeight).as<uint8_t>() + begin * s.inner / 2, c.in(kWeightScale).as<uint16_t>() + begin * s.blocks(), s.inner, s.blocks()};
    for (int64_t r = 0; r < s.rows; ++r) {
      float* out = c.out().as<float>() + r * s.columns;
      MultiplyNibbles(weight, {grouped(r), grouped(r) + GroupedSize(s.inner)}, end - begin, out + begin);
      if (bias)
        for (int64_t n = begin; n < end; ++n) out[n] += bias[n];
    }
  });
}

void ManyFloatRows(const KernelContext& c, const Shape& s) {
  const float *x = c.in(kInput).as<float>(), *bias = c.has(kBias) ? c.in(kBias).as<float>() : nullptr;
  float* out = c.out().as<float>();
  ParallelRanges(c.pool, s.columns, kColumns, [&](int64_t begin, int64_t end) {
    alignas(64) float unpacked[kColumns * kInner];
    for (int64_t r = 0; r < s.rows; ++r)
      for (int64_t n = begin; n < end; ++n) out[r * s.columns + n] = bias ? bias[n] : 0;
    for (int64_t k = 0; k < s.inner; k += kInner) {
      const int64_t count = std::min(kInner, s.inner - k);
      for (int64_t n = begin; n < end; ++n) UnpackFloats(s.matrix, n, k, count, unpacked + (n - begin) * kInner);
      for (int64_t r = 0; r < s.rows; r += kRows)
        MultiplyTransposed({std::min(kRows, s.rows - r), end - begin, count, x + r * s.inner + k, s.inner, unpacked, kInner,
                            out + r * s.columns + begin, s.columns});
    }
  });
}

// Rows less their zero points are 9 bits, so 16 bits hold them and 32 bits hold the sum of any 65000 products with weights.
void DynamicRows(const KernelContext& c, const Shape& s) {
  const float *scale = c.in(kInputScale).as<float>(), *bias = c.has(kBias) ? c.in(kBias).as<float>() : nullptr;
  int16_t* rows = reinterpret_cast<int16_t*>(c.scratch.data());
  ParallelRanges(c.pool, s.rows, GrainOf(s.inner), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int8_t* x = c.in(kInput).as<int8_t>() + r * s.inner;
      const int32_t zero_point = c.in(kInputZeroPoint).as<int32_t>()[r];
      for (int64_t k = 0; k < s.inner; ++k) rows[r * s.inner + k] = static_cast<int16_t>(x[k] - zero_point);
    }
  });
  const int64_t grain = GrainOf(s.rows * s.matrix.weight.sizes[1], kWeightBytes);
  ParallelRanges(c.pool, s.columns, grain, [&](int64_t begin, int64_t end) {
    alignas(64) int16_t unpacked[kInner];
    int32_t dots[kRows];
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t first = 0; first < s.rows; first += kRows) {
        const int64_t count = std::min(kRows, s.rows - first);
        float sums[kRows] = {};
        for (int64_t k = 0; k < s.inner; k += kInner) {
          const int64_t inner = std::min(kInner, s.inner - k);
          UnpackIntegers(s.matrix, n, k, inner, unpacked);
          for (int64_t at = k; at < k + inner;) {  // a block, or what of it lies in this part
            const int64_t end_of_block = std::min(k + inner, (at / s.block + 1) * s.block);
            DotIntegers(rows + first * s.inner + at, s.inner, count, unpacked + (at - k), end_of_block - at, dots);
            const float block_scale = s.matrix.scale_of(n, at);
            for (int64_t r = 0; r < count; ++r) sums[r] += static_cast<float>(dots[r]) * block_scale;
            at = end_of_block;
          }
        }
        for (int64_t r = 0; r < count; ++r)
          c.out().as<float>()[(first + r) * s.columns + n] = sums[r] * scale[first + r] + (bias ? bias[n] : 0);
      }
    }
  });
}

}  // namespace

Status QuantizedLinear(const KernelContext& c) {
  const Shape s(c);
  if (c.has(kInputScale)) DynamicRows(c, s);
  else if (s.unpacks_in_registers()) FewFloatRows(c, s);
  else ManyFloatRows(c, s);
  return OkStatus();
}

size_t QuantizedLinearScratch(const KernelContext& c) {
  const Shape s(c);
  if (c.in(kInput).dtype == DType::kI8) return static_cast<size_t>(s.rows * s.inner) * sizeof(int16_t);
  return s.matrix.nibbles() && FitsGroups(s.block) ? static_cast<size_t>(std::min(s.rows, kFewRows) * s.GroupedRowSize()) * sizeof(float) : 0;
}

}  // namespace dovetail::kernels
