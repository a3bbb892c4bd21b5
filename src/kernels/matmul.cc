// Products of f32 matrices and of batches of them, in blocks of the result.
#include "ops/matmul.h"

#include "kernels/gemm.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"

namespace dovetail::kernels {
namespace {

constexpr int64_t kRows = 64;
constexpr int64_t kColumns = 128;
constexpr int64_t kInner = 128;

void Multiply(const KernelContext& c) {
  const MatmulPlan plan(c.in(0), c.in(1), c.out());
  const float *a = c.in(0).as<float>(), *b = c.in(1).as<float>();
  float* out = c.out().as<float>();
  const int64_t rows = plan.rows, columns = plan.columns, inner = plan.inner;
  const int64_t across = (columns + kColumns - 1) / kColumns, down = (rows + kRows - 1) / kRows;
  struct pthreadpool* pool = plan.batch * rows * columns * inner < 65536 ? nullptr : c.pool;
  ParallelFor(pool, plan.batch * down * across, [&](int64_t i) {
    const int64_t item = i / (down * across), row = i / across % down * kRows, column = i % across * kColumns;
    const int64_t m = std::min(kRows, rows - row), n = std::min(kColumns, columns - column);
    const MatmulItem at = plan.Item(item);
    const float *first = a + at.self + row * inner, *second = b + at.other + column;
    float* block = out + (item * rows + row) * columns + column;
    for (int64_t r = 0; r < m; ++r) std::fill_n(block + r * columns, n, 0.0f);
    if (columns == 1) return MultiplyTransposed({m, 1, inner, first, inner, second, inner, block, 1});
    for (int64_t k = 0; k < inner; k += kInner)
      MultiplyAdd({m, n, std::min(kInner, inner - k), first + k, inner, second + k * columns, columns, block, columns});
  });
}

}  // namespace

Status Matmul(const KernelContext& c) {
  if (c.out().dtype != DType::kF32) return ReferenceMatmul(c);
  Multiply(c);
  return OkStatus();
}

Status Bmm(const KernelContext& c) { return Matmul(c); }

}  // namespace dovetail::kernels
