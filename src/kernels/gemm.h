// The inner loops of matrix products, single-threaded. `ld` is the distance of rows in elements. Sums are in float.
#pragma once

#include <cstdint>

namespace dovetail {

struct MatrixProduct {
  int64_t rows, columns, inner;
  const float* a;  // [rows, inner]
  int64_t lda;
  const float* b;
  int64_t ldb;
  float* c;  // [rows, columns]
  int64_t ldc;
};

// c += a @ b^T; b is [columns, inner].
void MultiplyTransposed(const MatrixProduct& m);
// c += a @ b; b is [inner, columns].
void MultiplyAdd(const MatrixProduct& m);

}  // namespace dovetail
