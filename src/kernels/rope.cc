#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"

namespace dovetail::kernels {
namespace {

DT_VECTORIZED void Rotate(float* __restrict out, const float* __restrict in, const float* __restrict cos, const float* __restrict sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) out[i] = in[i] * cos[i] - in[i + half] * sin[i];
  for (int64_t i = half; i < 2 * half; ++i) out[i] = in[i] * cos[i] + in[i - half] * sin[i];
}

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
  const int64_t rows = width ? out.numel() / width : 0;
  ParallelRanges(c.pool, rows, GrainOf(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      Rotate(out.as<float>() + r * width, c.in(0).as<float>() + r * width, cos.as<float>() + TableRow(cos, out, r),
             sin.as<float>() + TableRow(sin, out, r), width / 2);
    }
  });
  return OkStatus();
}

}  // namespace dovetail::kernels
