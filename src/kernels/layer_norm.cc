#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/vector_kernels.h"

namespace dovetail::kernels {

Status LayerNorm(const KernelContext& c) {
  if (c.out().dtype != DType::kF32) return GetOp(OpId::kLayerNorm).reference(c);
  const int64_t width = c.in(1).sizes[0], rows = width ? c.in(0).numel() / width : 0;
  const float *in = c.in(0).as<float>(), *weight = c.in(1).as<float>(), *bias = c.in(2).as<float>(), eps = static_cast<float>(c.attr(0).Number());
  float* out = c.out().as<float>();
  const VectorKernels& vectors = Vectors();
  ParallelRanges(c.pool, rows, GrainOf(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) vectors.layer_norm_row(out + r * width, in + r * width, weight, bias, eps, width);
  });
  return OkStatus();
}

}  // namespace dovetail::kernels
