#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/quantized_weights.h"
#include "ops/advanced_index.h"

namespace dovetail::kernels {

Status QuantizedEmbedding(const KernelContext& c) {
  const QuantizedMatrix w{c.in(0), c.in(1)};
  const TensorView& indices = c.in(2);
  const int64_t columns = w.columns();
  for (int64_t i = 0; i < indices.numel(); ++i)
    if (const int64_t at = IndexAt(indices, i); at < 0 || at >= w.rows()) return IndexOutOfBounds(at, 0, w.rows());
  ParallelRanges(c.pool, indices.numel(), GrainOf(columns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) UnpackFloats(w, IndexAt(indices, i), 0, columns, c.out().as<float>() + i * columns);
  });
  return OkStatus();
}

}  // namespace dovetail::kernels
