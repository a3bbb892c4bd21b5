#include "kernels/gemm.h"

#include "kernels/simd.h"

namespace dovetail {
namespace {

using simd::Floats;
using simd::kLanes;

// R rows by N columns of c, each plus a sum of products along the rows of a and b.
template <int R, int N>
DT_INLINE void DotTile(const MatrixProduct& m, int64_t row, int64_t column) {
  const float *a = m.a + row * m.lda, *b = m.b + column * m.ldb;
  Floats sums[R][N] = {};
  const auto add_products = [&](int64_t k, const auto& load) __attribute__((always_inline)) {
    Floats bs[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) bs[n] = load(b + n * m.ldb + k);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Floats as = load(a + r * m.lda + k);
      if constexpr (R > 1) simd::KeepLoaded();
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[r][n] += as * bs[n];
    }
  };
  int64_t k = 0;
  for (; k + kLanes <= m.inner; k += kLanes) add_products(k, [](const float* p) __attribute__((always_inline)) { return simd::LoadFloats(p); });
  if (k < m.inner) add_products(k, [&](const float* p) __attribute__((always_inline)) { return simd::LoadFirst(p, m.inner - k); });

  alignas(32) float totals[R * N];
  if constexpr (R * N % kLanes == 0) {
#pragma GCC unroll 8
    for (int i = 0; i < R * N; i += kLanes) simd::StoreFloats(totals + i, simd::Sums(&sums[0][0] + i));
  } else {
#pragma GCC unroll 8
    for (int i = 0; i < R * N; ++i) totals[i] = simd::Sum((&sums[0][0])[i]);
  }
  float* c = m.c + row * m.ldc + column;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) c[r * m.ldc + n] += totals[r * N + n];
}

template <int R, int N>
DT_INLINE void DotRows(const MatrixProduct& m, int64_t row) {
  int64_t column = 0;
  for (; column + N <= m.columns; column += N) DotTile<R, N>(m, row, column);
  for (; column < m.columns; ++column) DotTile<R, 1>(m, row, column);
}

// R rows by N vectors of columns of c, plus products summed over the rows of b.
template <int R, int N>
DT_INLINE void SumTile(const MatrixProduct& m, int64_t row, int64_t column) {
  const float *a = m.a + row * m.lda, *b = m.b + column;
  float* c = m.c + row * m.ldc + column;
  Floats sums[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) sums[r][n] = simd::LoadFloats(c + r * m.ldc + n * kLanes);
  for (int64_t k = 0; k < m.inner; ++k, b += m.ldb) {
    Floats bs[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) bs[n] = simd::LoadFloats(b + n * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float as = a[r * m.lda + k];
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[r][n] += as * bs[n];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) simd::StoreFloats(c + r * m.ldc + n * kLanes, sums[r][n]);
}

template <int R, int N>
DT_INLINE void SumRows(const MatrixProduct& m, int64_t row) {
  int64_t column = 0;
  for (; column + N * kLanes <= m.columns; column += N * kLanes) SumTile<R, N>(m, row, column);
  for (; column + kLanes <= m.columns; column += kLanes) SumTile<R, 1>(m, row, column);
  for (; column < m.columns; ++column) {
    for (int r = 0; r < R; ++r) {
      float& c = m.c[(row + r) * m.ldc + column];
      for (int64_t k = 0; k < m.inner; ++k) c += m.a[(row + r) * m.lda + k] * m.b[k * m.ldb + column];
    }
  }
}

}  // namespace

// Tiles of 8 sums: enough to hide the latency of an addition, few enough to stay in 16 registers.
DT_VECTORIZED void MultiplyTransposed(const MatrixProduct& m) {
  int64_t row = 0;
  for (; row + 4 <= m.rows; row += 4) DotRows<4, 2>(m, row);
  for (; row + 2 <= m.rows; row += 2) DotRows<2, 4>(m, row);
  for (; row < m.rows; ++row) DotRows<1, 8>(m, row);
}

DT_VECTORIZED void MultiplyAdd(const MatrixProduct& m) {
  int64_t row = 0;
  for (; row + 4 <= m.rows; row += 4) SumRows<4, 2>(m, row);
  for (; row + 2 <= m.rows; row += 2) SumRows<2, 4>(m, row);
  for (; row < m.rows; ++row) SumRows<1, 8>(m, row);
}

}  // namespace dovetail
