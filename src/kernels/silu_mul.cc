#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/vector_kernels.h"

namespace dovetail::kernels {

Status SiluMul(const KernelContext& c) {
  if (c.out().dtype != DType::kF32) return GetOp(OpId::kSiluMul).reference(c);
  const float *gate = c.in(0).as<float>(), *up = c.in(1).as<float>();
  float* out = c.out().as<float>();
  const VectorKernels& vectors = Vectors();
  ParallelRanges(c.pool, c.out().numel(), kGrainElements,
                 [&](int64_t begin, int64_t end) { vectors.silu_mul(out + begin, gate + begin, up + begin, end - begin); });
  return OkStatus();
}

}  // namespace dovetail::kernels
