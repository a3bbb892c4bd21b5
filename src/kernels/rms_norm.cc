#include <cmath>

#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"

namespace dovetail::kernels {
namespace {

DT_VECTORIZED void Row(float* __restrict out, const float* __restrict in, const float* __restrict weight, int64_t n, float eps) {
  simd::Floats sums = {};
  int64_t i = 0;
  for (; i + simd::kLanes <= n; i += simd::kLanes) {
    const simd::Floats x = simd::LoadFloats(in + i);
    sums += x * x;
  }
  float squares = simd::Sum(sums);
  for (; i < n; ++i) squares += in[i] * in[i];
  const float scale = 1 / std::sqrt(squares / static_cast<float>(n) + eps);
  for (i = 0; i < n; ++i) out[i] = in[i] * scale * weight[i];
}

}  // namespace

Status RmsNorm(const KernelContext& c) {
  if (c.out().dtype != DType::kF32) return GetOp(OpId::kRmsNorm).reference(c);
  const int64_t width = c.in(1).sizes[0], rows = width ? c.in(0).numel() / width : 0;
  const float *in = c.in(0).as<float>(), *weight = c.in(1).as<float>(), eps = static_cast<float>(c.attr(0).Number());
  float* out = c.out().as<float>();
  ParallelRanges(c.pool, rows, GrainOf(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) Row(out + r * width, in + r * width, weight, width, eps);
  });
  return OkStatus();
}

}  // namespace dovetail::kernels
