// Sums and means of f32 over dims that stand together: [outer, count, inner] to [outer, inner].
#include <array>

#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"
#include "ops/reduce.h"

namespace dovetail::kernels {
namespace {

constexpr int64_t kBlock = 128;  // columns whose sums stay in the first cache

// out[i] = factor * sum over k of in[k * stride + i], in double as the reference adds.
DT_VECTORIZED void SumColumns(float* __restrict out, const float* __restrict in, int64_t columns, int64_t stride, int64_t count, double factor) {
  std::array<double, kBlock> sums{};
  for (int64_t k = 0; k < count; ++k)
    for (int64_t i = 0; i < columns; ++i) sums[static_cast<size_t>(i)] += static_cast<double>(in[k * stride + i]);
  for (int64_t i = 0; i < columns; ++i) out[i] = static_cast<float>(sums[static_cast<size_t>(i)] * factor);
}

DT_VECTORIZED double SumRow(const float* in, int64_t count) {
  std::array<double, simd::kLanes> sums{};
  int64_t k = 0;
  for (; k + simd::kLanes <= count; k += simd::kLanes)
    for (size_t lane = 0; lane < sums.size(); ++lane) sums[lane] += static_cast<double>(in[k + static_cast<int64_t>(lane)]);
  double sum = 0;
  for (double s : sums) sum += s;
  for (; k < count; ++k) sum += static_cast<double>(in[k]);
  return sum;
}

// Whether it was done: the reduced dims must stand together.
bool Reduce(const KernelContext& c, bool mean) {
  const TensorView &in = c.in(0), &out = c.out();
  if (in.dtype != DType::kF32 || out.dtype != DType::kF32) return false;
  const uint32_t reduced = *ReducedDims(c.attr(0), in.rank);
  int64_t outer = 1, count = 1, inner = 1;
  bool seen = false;
  for (size_t d = 0; d < in.rank; ++d) {
    const bool here = reduced >> d & 1;
    if (here && seen && inner != 1) return false;
    seen |= here;
    (here ? count : seen ? inner : outer) *= in.sizes[d];
  }
  const double factor = mean ? 1 / static_cast<double>(count) : 1;
  const float* from = in.as<float>();
  float* to = out.as<float>();
  if (inner == 1) {
    ParallelRanges(c.pool, outer, GrainOf(count), [&](int64_t begin, int64_t end) {
      for (int64_t o = begin; o < end; ++o) to[o] = static_cast<float>(SumRow(from + o * count, count) * factor);
    });
    return true;
  }
  const int64_t blocks = (inner + kBlock - 1) / kBlock;
  ParallelFor(c.pool, outer * blocks, [&](int64_t b) {
    const int64_t o = b / blocks, i = b % blocks * kBlock;
    SumColumns(to + o * inner + i, from + o * count * inner + i, std::min(kBlock, inner - i), inner, count, factor);
  });
  return true;
}

}  // namespace

Status Sum(const KernelContext& c) { return Reduce(c, false) ? OkStatus() : GetOp(OpId::kSum).reference(c); }
Status Mean(const KernelContext& c) { return Reduce(c, true) ? OkStatus() : GetOp(OpId::kMean).reference(c); }

}  // namespace dovetail::kernels
