// input @ weight^T + bias in f32, in blocks of the result: the weight rows of a block stay in the second cache.
#include "kernels/gemm.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"

namespace dovetail::kernels {
namespace {

constexpr int64_t kRows = 64;
constexpr int64_t kColumns = 32;
constexpr int64_t kInner = 512;

}  // namespace

Status Linear(const KernelContext& c) {
  const TensorView &input = c.in(0), &weight = c.in(1);
  if (input.dtype != DType::kF32) return GetOp(OpId::kLinear).reference(c);
  const int64_t inner = weight.sizes[weight.rank - 1u], columns = weight.rank == 2 ? weight.sizes[0] : 1;
  const int64_t rows = columns ? c.out().numel() / columns : 0;
  const float *a = input.as<float>(), *b = weight.as<float>(), *bias = c.has(2) ? c.in(2).as<float>() : nullptr;
  const int64_t bias_step = bias && c.in(2).numel() > 1 ? 1 : 0;
  float* out = c.out().as<float>();
  const int64_t across = (columns + kColumns - 1) / kColumns, down = (rows + kRows - 1) / kRows;
  struct pthreadpool* pool = rows * columns * inner < 65536 ? nullptr : c.pool;
  ParallelFor(pool, across * down, [&](int64_t i) {
    const int64_t row = i / across * kRows, column = i % across * kColumns;
    const int64_t n = std::min(kColumns, columns - column), m = std::min(kRows, rows - row);
    float* block = out + row * columns + column;
    for (int64_t r = 0; r < m; ++r)
      for (int64_t k = 0; k < n; ++k) block[r * columns + k] = bias ? bias[(column + k) * bias_step] : 0;
    for (int64_t k = 0; k < inner; k += kInner)
      MultiplyTransposed({m, n, std::min(kInner, inner - k), a + row * inner + k, inner, b + column * inner + k, inner, block, columns});
  });
  return OkStatus();
}

}  // namespace dovetail::kernels
