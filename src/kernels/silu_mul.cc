#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"

namespace dovetail::kernels {
namespace {

DT_VECTORIZED void SiluMulRange(float* out, const float* gate, const float* up, int64_t n) {
  int64_t i = 0;
  for (; i + simd::kLanes <= n; i += simd::kLanes) {
    const simd::Floats x = simd::LoadFloats(gate + i);
    simd::StoreFloats(out + i, x / (1 + simd::Exp(-x)) * simd::LoadFloats(up + i));
  }
  for (; i < n; ++i) out[i] = gate[i] / (1 + simd::Exp(-gate[i])) * up[i];
}

}  // namespace

Status SiluMul(const KernelContext& c) {
  if (c.out().dtype != DType::kF32) return GetOp(OpId::kSiluMul).reference(c);
  const float *gate = c.in(0).as<float>(), *up = c.in(1).as<float>();
  float* out = c.out().as<float>();
  ParallelRanges(c.pool, c.out().numel(), kGrainElements,
                 [&](int64_t begin, int64_t end) { SiluMulRange(out + begin, gate + begin, up + begin, end - begin); });
  return OkStatus();
}

}  // namespace dovetail::kernels
