#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/vector_kernels.h"

namespace dovetail::kernels {
namespace {

// Element of `table` that row `row` of `out` begins at; the table's last dim is the row.
int64_t TableRow(const TensorView& table, const TensorView& out, int64_t row) {
  int64_t at = 0, step = table.sizes[table.rank - 1u];
  for (size_t d = out.rank - 1u, t = table.rank - 1u; t-- > 0;) {
    --d;
    if (table.sizes[t] != 1) at += row % out.sizes[d] * step;
    row /= out.sizes[d];
    step *= table.sizes[t];
  }
  return at;
}

}  // namespace

Status Rope(const KernelContext& c) {
  const TensorView &out = c.out(), &cos = c.in(1), &sin = c.in(2);
  const int64_t width = out.sizes[out.rank - 1u];
  const auto has_rows = [&](const TensorView& table) { return table.rank > 0 && table.sizes[table.rank - 1u] == width; };
  if (out.dtype != DType::kF32 || !has_rows(cos) || !has_rows(sin)) return GetOp(OpId::kRope).reference(c);
  const VectorKernels& vectors = Vectors();
  const int64_t rows = width ? out.numel() / width : 0;
  // Rows that differ in the last of their dims only: there the tables go on evenly.
  const int64_t run = out.rank > 1 ? out.sizes[out.rank - 2u] : 1;
  const auto step_of = [&](const TensorView& table) { return table.rank > 1 && table.sizes[table.rank - 2u] != 1 ? width : 0; };
  const int64_t cos_step = step_of(cos), sin_step = step_of(sin);
  ParallelRanges(c.pool, rows, GrainOf(width), [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const float *cos_row = cos.as<float>() + TableRow(cos, out, begin), *sin_row = sin.as<float>() + TableRow(sin, out, begin);
      for (int64_t n = std::min(end - begin, run - begin % run); n > 0; --n, ++begin, cos_row += cos_step, sin_row += sin_step)
        vectors.rotate(out.as<float>() + begin * width, c.in(0).as<float>() + begin * width, cos_row, sin_row, width / 2);
    }
  });
  return OkStatus();
}

}  // namespace dovetail::kernels
