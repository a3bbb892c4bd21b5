// How int8 states are written and read: rows of int8, each with a scale.
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/vector_kernels.h"

namespace dovetail::kernels {

Status QuantizeRows(const KernelContext& c) {
  const int64_t rows = c.out(1).numel(), width = rows ? c.in(0).numel() / rows : 0;
  const VectorKernels& vectors = Vectors();
  const float* in = c.in(0).as<float>();
  int8_t* out = c.out().as<int8_t>();
  float* scales = c.out(1).as<float>();
  ParallelRanges(c.pool, rows, GrainOf(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) scales[r] = vectors.quantize_row(out + r * width, in + r * width, width);
  });
  return OkStatus();
}

Status DequantizeRows(const KernelContext& c) {
  const int64_t rows = c.in(1).numel(), width = rows ? c.in(0).numel() / rows : 0;
  const VectorKernels& vectors = Vectors();
  const float* scales = c.in(1).as<float>();
  const int8_t* in = c.in(0).as<int8_t>();
  float* out = c.out().as<float>();
  ParallelRanges(c.pool, rows, GrainOf(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) vectors.dequantize_row(out + r * width, in + r * width, scales[r], width);
  });
  return OkStatus();
}

}  // namespace dovetail::kernels
