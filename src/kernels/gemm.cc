#include "kernels/gemm.h"

#include "kernels/simd.h"

namespace dovetail {
namespace {

using simd::Floats;
using simd::kLanes;

// R rows by N columns of c, each the sum of products along the rows of a and b.
template <int R, int N>
DT_INLINE void DotTile(const MatrixProduct& m, int64_t row, int64_t column, bool add) {
  const float *a = m.a + row * m.lda, *b = m.b + column * m.ldb;
  Floats sums[R][N] = {};
  float totals[R][N];
  int64_t k = 0;
  for (; k + kLanes <= m.inner; k += kLanes) {
    Floats bs[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) bs[n] = simd::LoadFloats(b + n * m.ldb + k);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Floats as = simd::LoadFloats(a + r * m.lda + k);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[r][n] += as * bs[n];
    }
  }
  if constexpr (R * N % kLanes == 0) {
#pragma GCC unroll 8
    for (int i = 0; i < R * N; i += kLanes) simd::StoreFloats(&totals[0][0] + i, simd::Sums(&sums[0][0] + i));
  } else {
    for (int i = 0; i < R * N; ++i) (&totals[0][0])[i] = simd::Sum((&sums[0][0])[i]);
  }
  for (int r = 0; r < R; ++r) {
    for (int n = 0; n < N; ++n) {
      float sum = totals[r][n];
      for (int64_t t = k; t < m.inner; ++t) sum += a[r * m.lda + t] * b[n * m.ldb + t];
      float& c = m.c[(row + r) * m.ldc + column + n];
      c = add ? c + sum : sum;
    }
  }
}

template <int R, int N>
DT_INLINE void DotRows(const MatrixProduct& m, int64_t row, bool add) {
  int64_t column = 0;
  for (; column + N <= m.columns; column += N) DotTile<R, N>(m, row, column, add);
  for (; column < m.columns; ++column) DotTile<R, 1>(m, row, column, add);
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
      const Floats as = simd::Splat(a[r * m.lda + k]);
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
DT_VECTORIZED void MultiplyTransposed(const MatrixProduct& m, bool add) {
  int64_t row = 0;
  for (; row + 4 <= m.rows; row += 4) DotRows<4, 2>(m, row, add);
  for (; row + 2 <= m.rows; row += 2) DotRows<2, 4>(m, row, add);
  for (; row < m.rows; ++row) DotRows<1, 8>(m, row, add);
}

DT_VECTORIZED void MultiplyAdd(const MatrixProduct& m) {
  int64_t row = 0;
  for (; row + 4 <= m.rows; row += 4) SumRows<4, 2>(m, row);
  for (; row + 2 <= m.rows; row += 2) SumRows<2, 4>(m, row);
  for (; row < m.rows; ++row) SumRows<1, 8>(m, row);
}

}  // namespace dovetail
