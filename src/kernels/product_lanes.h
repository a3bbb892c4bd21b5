// Products of a few rows with keys or values, and the forms these are brought to for it, over the vectors V of an instruction set (lanes.h).
#pragma once

#include "kernels/lanes.h"

namespace dovetail::lanes {

// c = a @ b, or c += a @ b, of a few rows; a and c by row.
template <class T>
struct Product {
  int64_t columns, inner;
  const float* const* a;  // [rows][inner]
  const T* b;             // [inner, columns]
  int64_t ldb;
  float* const* c;  // [rows][columns]
  bool add;
};

// R rows by N vectors of columns; the last `count` columns, less than a vector, with kTail.
template <class V, int R, int N, bool kTail, class T>
void Tile(const Product<T>& p, int64_t column, int64_t count) {
  using Floats = typename V::Floats;
  const float* a[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) a[r] = p.a[r];
  const T* b = p.b + column;
  Floats sums[R][N] = {};
  for (int64_t k = 0; k < p.inner; ++k, b += p.ldb) {
    Floats bs[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) bs[n] = kTail ? V::LoadFirst(b, count) : V::Load(b + n * V::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float x = a[r][k];
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[r][n] += x * bs[n];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      float* to = p.c[r] + column + n * V::kLanes;
      if constexpr (kTail) {
        V::StoreFirst(to, p.add ? V::LoadFirst(to, count) + sums[r][n] : sums[r][n], count);
      } else {
        V::Store(to, p.add ? V::Load(to) + sums[r][n] : sums[r][n]);
      }
    }
}

template <class V, int R, int N, class T>
void Columns(const Product<T>& p, int64_t column) {
  for (; column + N * V::kLanes <= p.columns; column += N * V::kLanes) Tile<V, R, N, false>(p, column, 0);
  if constexpr (N > 1) Columns<V, R, N / 2>(p, column);
  else if (column < p.columns) Tile<V, R, 1, true>(p, column, p.columns - column);
}

template <class V, class T>
void Multiply(int64_t rows, Product<T> p) {
  const auto take = [&](int64_t n) __attribute__((always_inline)) {
    rows -= n;
    p.a += n;
    p.c += n;
  };
  for (; rows >= 4; take(4)) Columns<V, 4, V::kSums / 4>(p, 0);
  for (; rows >= 2; take(2)) Columns<V, 2, V::kSums / 2 < 8 ? V::kSums / 2 : 8>(p, 0);
  for (; rows >= 1; take(1)) Columns<V, 1, 8>(p, 0);
}

// R rows' products with n keys, a vector of them at a time; `scores` has room for whole vectors.
template <class V, int R, class T>
void DotKeys(const float* const* query, int64_t width, const T* keys, int64_t key_stride, int64_t n, float* scores, int64_t ld) {
  using Floats = typename V::Floats;
  constexpr int64_t kAtOnce = V::kLanes / R;
  for (int64_t k = 0; k < n; k += kAtOnce) {
    const T* rows[kAtOnce];
#pragma GCC unroll 16
    for (int64_t j = 0; j < kAtOnce; ++j) rows[j] = keys + Min(k + j, n - 1) * key_stride;
    Floats sums[V::kLanes] = {};
    const auto add = [&](int64_t d, const auto& load) __attribute__((always_inline)) {
      Floats qs[R];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) qs[r] = load(query[r] + d);
#pragma GCC unroll 16
      for (int64_t j = 0; j < kAtOnce; ++j) {
        const Floats x = load(rows[j] + d);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) sums[r * kAtOnce + j] += qs[r] * x;
      }
    };
    int64_t d = 0;
    for (; d + V::kLanes <= width; d += V::kLanes) add(d, [](const auto* p) __attribute__((always_inline)) { return V::Load(p); });
    if (d < width) add(d, [&](const auto* p) __attribute__((always_inline)) { return V::LoadFirst(p, width - d); });
    const Floats totals = V::Sums(sums);
    if constexpr (R == 1) {
      V::Store(scores + k, totals);
    } else {
      float each[V::kLanes];
      V::Store(each, totals);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) std::memcpy(scores + r * ld + k, each + r * kAtOnce, sizeof(float) * kAtOnce);
    }
  }
}

// to[d, key] of `columns` columns of n keys, `stride` apart, times `scale` and each key's; zeros up to a whole vector of keys.
template <class V, class T>
void TransposeKeys(const T* keys, int64_t stride, int64_t n, int64_t columns, float scale, const float* key_scale, float* to, int64_t ld) {
  using Floats = typename V::Floats;
  constexpr int64_t L = V::kLanes;
  for (int64_t k = 0; k < n; k += L) {
    const int64_t count = Min(L, n - k);
    const Floats scales = !key_scale ? V::Splat(scale) : (count == L ? V::Load(key_scale + k) : V::LoadFirst(key_scale + k, count)) * scale;
    for (int64_t d = 0; d < columns; d += L) {
      const T* from = keys + k * stride + d;
      const int64_t some = Min(L, columns - d);
      Floats v[L];
      if (count == L && some == L) {
#pragma GCC unroll 16
        for (int64_t j = 0; j < L; ++j) v[j] = V::Load(from + j * stride);
      } else {
        for (int64_t j = 0; j < L; ++j) v[j] = j >= count ? Floats{} : some == L ? V::Load(from + j * stride) : V::LoadFirst(from + j * stride, some);
      }
      V::Transpose(v);
      if (some == L) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < L; ++i) V::Store(to + (d + i) * ld + k, v[i] * scales);
      } else {
        for (int64_t i = 0; i < some; ++i) V::Store(to + (d + i) * ld + k, v[i] * scales);
      }
    }
  }
}

// [n, columns] of values as floats, `columns` apart.
template <class V, class T>
void GatherValues(const T* values, int64_t stride, int64_t n, int64_t columns, const float* scale, float* to) {
  for (int64_t k = 0; k < n; ++k, values += stride, to += columns) {
    const float factor = scale ? scale[k] : 1;
    int64_t d = 0;
    for (; d + V::kLanes <= columns; d += V::kLanes) V::Store(to + d, V::Load(values + d) * factor);
    if (d < columns) V::StoreFirst(to + d, V::LoadFirst(values + d, columns - d) * factor, columns - d);
  }
}

}  // namespace dovetail::lanes
