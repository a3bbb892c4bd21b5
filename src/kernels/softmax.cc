// Over the last dim in f32; others by the reference.
#include <cmath>

#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"

namespace dovetail::kernels {
namespace {

DT_VECTORIZED void Row(float* out, const float* in, int64_t n) {
  using simd::Floats;
  using simd::kLanes;
  Floats largest = simd::Splat(-INFINITY);
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) largest = simd::Max(simd::LoadFloats(in + i), largest);
  float most = simd::MaxLane(largest);
  for (; i < n; ++i) most = in[i] > most ? in[i] : most;

  Floats sums = {};
  for (i = 0; i + kLanes <= n; i += kLanes) {
    const Floats e = simd::Exp(simd::LoadFloats(in + i) - most);
    simd::StoreFloats(out + i, e);
    sums += e;
  }
  float sum = simd::Sum(sums);
  for (; i < n; ++i) sum += out[i] = simd::Exp(in[i] - most);
  const float factor = 1 / sum;
  for (i = 0; i < n; ++i) out[i] *= factor;
}

}  // namespace

Status Softmax(const KernelContext& c) {
  const TensorView& in = c.in(0);
  const int64_t dim = c.attr(0).Int();
  if (in.dtype != DType::kF32 || c.out().dtype != DType::kF32 || (dim != -1 && dim + 1 != in.rank)) return GetOp(OpId::kSoftmax).reference(c);
  const int64_t width = in.rank ? in.sizes[in.rank - 1u] : 1, rows = width ? in.numel() / width : 0;
  ParallelRanges(c.pool, rows, GrainOf(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) Row(c.out().as<float>() + r * width, in.as<float>() + r * width, width);
  });
  return OkStatus();
}

}  // namespace dovetail::kernels
