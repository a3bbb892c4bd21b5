// Over the last dim in f32; others by the reference.
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/vector_kernels.h"

namespace dovetail::kernels {

Status Softmax(const KernelContext& c) {
  const TensorView& in = c.in(0);
  const int64_t dim = c.attr(0).Int();
  if (in.dtype != DType::kF32 || c.out().dtype != DType::kF32 || (dim != -1 && dim + 1 != in.rank)) return GetOp(OpId::kSoftmax).reference(c);
  const int64_t width = in.rank ? in.sizes[in.rank - 1u] : 1, rows = width ? in.numel() / width : 0;
  const VectorKernels& vectors = Vectors();
  ParallelRanges(c.pool, rows, GrainOf(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) vectors.softmax_row(c.out().as<float>() + r * width, in.as<float>() + r * width, width);
  });
  return OkStatus();
}

}  // namespace dovetail::kernels
