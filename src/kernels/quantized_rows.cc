// How int8 states are written and read: rows of int8, each with a scale.
#include <cmath>

#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"
#include "ops/quantization.h"

namespace dovetail::kernels {
namespace {

// In double, as QuantizeElement computes: the same integers.
DT_VECTORIZED float QuantizeRow(int8_t* __restrict out, const float* __restrict in, int64_t n) {
  float most = 0;
  for (int64_t i = 0; i < n; ++i) most = std::abs(in[i]) > most ? std::abs(in[i]) : most;
  const float scale = SymmetricRowScale(most);
  const double divisor = static_cast<double>(scale);
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer, ties to even
  for (int64_t i = 0; i < n; ++i) {
    double q = static_cast<double>(in[i]) / divisor;
    q = q < 127 ? q : 127;
    q = q > -127 ? q : -127;
    out[i] = static_cast<int8_t>(static_cast<int32_t>(q + kRound - kRound));
  }
  return scale;
}

DT_VECTORIZED void DequantizeRow(float* __restrict out, const int8_t* __restrict in, float scale, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(in[i]) * scale;
}

}  // namespace

Status QuantizeRows(const KernelContext& c) {
  const int64_t rows = c.out(1).numel(), width = rows ? c.in(0).numel() / rows : 0;
  const float* in = c.in(0).as<float>();
  int8_t* out = c.out().as<int8_t>();
  float* scales = c.out(1).as<float>();
  ParallelRanges(c.pool, rows, GrainOf(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = in + r * width;
      scales[r] = QuantizeRow(out + r * width, row, width);
      // A row of zeros, and one with elements that are no numbers: what the loop above makes of them is nothing to rely on.
      if (!(scales[r] > 0 && scales[r] < INFINITY) || std::any_of(row, row + width, [](float x) { return std::isnan(x); }))
        for (int64_t i = 0; i < width; ++i) out[r * width + i] = static_cast<int8_t>(scales[r] > 0 ? QuantizeElement(row[i], scales[r], 0, {-127, 127}) : 0);
    }
  });
  return OkStatus();
}

Status DequantizeRows(const KernelContext& c) {
  const int64_t rows = c.in(1).numel(), width = rows ? c.in(0).numel() / rows : 0;
  const float* scales = c.in(1).as<float>();
  const int8_t* in = c.in(0).as<int8_t>();
  float* out = c.out().as<float>();
  ParallelRanges(c.pool, rows, GrainOf(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) DequantizeRow(out + r * width, in + r * width, scales[r], width);
  });
  return OkStatus();
}

}  // namespace dovetail::kernels
