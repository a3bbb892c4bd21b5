// VectorKernels::attend, over the vectors V of an instruction set (lanes.h).
//
// Attention by blocks of keys with a running maximum and sum per row, so that no row of all weights is ever kept (Dao et al.,
// "FlashAttention", 2022). With many rows, a block's keys are first transposed and its int8 values made floats, in a piece of memory that all
// rows use; scores and results are then both products of a few rows with a matrix whose rows are contiguous. With few rows that would cost more
// than it saves: they read keys and values where they stand, int8 becoming floats in registers.
#pragma once

#include "kernels/lanes.h"
#include "kernels/vector_kernels.h"

namespace dovetail::lanes {

constexpr int64_t kKeys = 64;    // of a block
constexpr int64_t kPiece = 128;  // columns that are transposed or made floats together
constexpr int64_t kFewRows = 8;  // with fewer, keys and values are used where they stand
constexpr int64_t kFewRowsKeys = AttentionBlock::kMaxRows * kKeys / kFewRows;
constexpr float kNone = -__builtin_inff();

// c = a @ b, or c += a @ b.
template <class T>
struct Product {
  int64_t columns, inner;
  const float* a;  // [rows, inner]
  int64_t lda;
  const T* b;  // [inner, columns]
  int64_t ldb;
  float* c;  // [rows, columns]
  int64_t ldc;
  bool add;
};

// R rows by N vectors of columns; the last `count` columns, less than a vector, with kTail.
template <class V, int R, int N, bool kTail, class T>
void Tile(const Product<T>& p, int64_t column, int64_t count) {
  using Floats = typename V::Floats;
  const float* a = p.a;
  const T* b = p.b + column;
  Floats sums[R][N] = {};
  for (int64_t k = 0; k < p.inner; ++k, ++a, b += p.ldb) {
    Floats bs[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) bs[n] = kTail ? V::LoadFirst(b, count) : V::Load(b + n * V::kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float x = a[r * p.lda];
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[r][n] += x * bs[n];
    }
  }
  float* c = p.c + column;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      float* to = c + r * p.ldc + n * V::kLanes;
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
    p.a += n * p.lda;
    p.c += n * p.ldc;
  };
  for (; rows >= 4; take(4)) Columns<V, 4, V::kSums / 4>(p, 0);
  for (; rows >= 2; take(2)) Columns<V, 2, V::kSums / 2 < 8 ? V::kSums / 2 : 8>(p, 0);
  for (; rows >= 1; take(1)) Columns<V, 1, 8>(p, 0);
}

// R rows' products with n keys, a vector of them at a time; `scores` has room for whole vectors.
template <class V, int R, class T>
void DotKeys(const float* query, const T* keys, int64_t width, int64_t n, float* scores, int64_t ld) {
  using Floats = typename V::Floats;
  constexpr int64_t kAtOnce = V::kLanes / R;
  for (int64_t k = 0; k < n; k += kAtOnce) {
    const T* rows[kAtOnce];
#pragma GCC unroll 16
    for (int64_t j = 0; j < kAtOnce; ++j) rows[j] = keys + Min(k + j, n - 1) * width;
    Floats sums[V::kLanes] = {};
    const auto add = [&](int64_t d, const auto& load) __attribute__((always_inline)) {
      Floats qs[R];
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) qs[r] = load(query + r * width + d);
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

// to[d, key] of `columns` columns of n keys, `width` apart; zeros up to a whole vector of keys.
template <class V, class T>
void TransposeKeys(const T* keys, int64_t width, int64_t n, int64_t columns, const float* key_scale, float* to) {
  using Floats = typename V::Floats;
  constexpr int64_t L = V::kLanes;
  for (int64_t k = 0; k < n; k += L) {
    const int64_t count = Min(L, n - k);
    const Floats scale = !key_scale ? V::Splat(1) : count == L ? V::Load(key_scale + k) : V::LoadFirst(key_scale + k, count);
    for (int64_t d = 0; d < columns; d += L) {
      const T* from = keys + k * width + d;
      const int64_t some = Min(L, columns - d);
      Floats v[L];
      if (count == L && some == L) {
#pragma GCC unroll 16
        for (int64_t j = 0; j < L; ++j) v[j] = V::Load(from + j * width);
      } else {
        for (int64_t j = 0; j < L; ++j) v[j] = j >= count ? Floats{} : some == L ? V::Load(from + j * width) : V::LoadFirst(from + j * width, some);
      }
      V::Transpose(v);
      if (some == L) {
#pragma GCC unroll 16
        for (int64_t i = 0; i < L; ++i) V::Store(to + (d + i) * kKeys + k, v[i] * scale);
      } else {
        for (int64_t i = 0; i < some; ++i) V::Store(to + (d + i) * kKeys + k, v[i] * scale);
      }
    }
  }
}

// [n, columns] of values as floats, kPiece apart.
template <class V>
void WidenValues(const int8_t* values, int64_t width, int64_t n, int64_t columns, const float* scale, float* to) {
  for (int64_t k = 0; k < n; ++k, values += width, to += kPiece) {
    int64_t d = 0;
    for (; d + V::kLanes <= columns; d += V::kLanes) V::Store(to + d, V::Load(values + d) * scale[k]);
    if (d < columns) V::Store(to + d, V::LoadFirst(values + d, columns - d) * scale[k]);
  }
}

// One row's scores of a block of keys.
struct ScoreRow {
  float* scores;  // room for whole vectors
  int64_t visible, count;  // keys that count, and keys whose weights are read
  const float *key_scale, *value_scale;  // or null
  const float* bias;  // or null; readable up to a whole vector
};

// The scores become weights; returns the factor by which the row's earlier results shrink.
template <class V>
float Weigh(const ScoreRow& row, float scale, float* most, float* sum) {
  using Floats = typename V::Floats;
  constexpr int64_t L = V::kLanes;
  float* s = row.scores;
  Floats largest = V::Splat(kNone);
  int64_t k = 0;
  const auto take = [&](int64_t n) __attribute__((always_inline)) {
    Floats x = V::Load(s + k) * scale;
    if (row.key_scale) x *= n == L ? V::Load(row.key_scale + k) : V::LoadFirst(row.key_scale + k, n);
    if (row.bias) {  // -inf also where the score is no number
      const Floats bias = V::Load(row.bias + k);
      x = bias == kNone ? bias : x + bias;
    }
    if (n < L) x = V::First(x, n, V::Splat(kNone));
    largest = V::Max(x, largest);
    V::Store(s + k, x);
  };
  for (; k + L <= row.visible; k += L) take(L);
  if (k < row.visible) take(row.visible - k);
  const int64_t weighed = RoundUp(row.visible, L), end = RoundUp(row.count, L);
  for (k = weighed; k < end; k += L) V::Store(s + k, Floats{});

  const float before = *most, larger = V::MaxLane(largest), now = larger > before ? larger : before;
  // While a row has seen nothing, its maximum is -inf, and -inf - -inf no number.
  const float base = now == kNone ? 0 : now;
  Floats total = {};
  for (k = 0; k < weighed; k += L) {
    const Floats weights = V::ExpOfNegative(V::Load(s + k) - base);
    total += weights;
    if (!row.value_scale) V::Store(s + k, weights);
    else V::Store(s + k, weights * (k + L <= row.visible ? V::Load(row.value_scale + k) : V::LoadFirst(row.value_scale + k, row.visible - k)));
  }
  const float factor = before == now ? 1 : V::ExpOfNegative(V::Splat(before - base))[0];
  *most = now;
  *sum = *sum * factor + V::Sum(total);
  return factor;
}

// What to add to a row's scores of keys [key, key + n), or null: the mask itself where it is such, else a copy in `memory`, which already holds that
// of the offset *held.
template <class V>
const float* Bias(const AttentionBlock& b, int64_t row, int64_t key, int64_t n, float* memory, int64_t* held) {
  if (!b.keep && !b.bias) return nullptr;
  const int64_t at = b.mask_at[row] + key * b.mask_stride;
  if (b.bias && b.mask_stride == 1 && n % V::kLanes == 0) return b.bias + at;
  if (at == *held) return memory;
  *held = at;
  int64_t i = 0;
  if (b.keep && b.mask_stride == 1) {
    const auto* keep = reinterpret_cast<const int8_t*>(b.keep + at);
    for (; i + V::kLanes <= n; i += V::kLanes) V::Store(memory + i, V::Load(keep + i) == 0.0f ? V::Splat(kNone) : V::Splat(0));
  }
  for (; i < n; ++i) {
    const int64_t from = at + i * b.mask_stride;
    memory[i] = b.bias ? b.bias[from] : b.keep[from] ? 0 : kNone;
  }
  return memory;
}

template <class V, class T>
void Attend(const AttentionBlock& b) {
  constexpr int64_t L = V::kLanes;
  alignas(64) float scores[AttentionBlock::kMaxRows * kKeys], piece[kKeys * kPiece], bias[kFewRowsKeys];
  const bool few = b.rows < kFewRows;
  const int64_t width = b.width, value_width = b.value_width, ld = few ? kFewRowsKeys : kKeys;
  int64_t end = 0;
  for (int64_t r = 0; r < b.rows; ++r) {
    b.most[r] = kNone;
    b.sum[r] = 0;
    if (b.visible[r] > end) end = b.visible[r];
  }
  std::memset(b.results, 0, static_cast<size_t>(b.rows * value_width) * sizeof(float));
  end = Min(end, b.end);

  for (int64_t k = b.begin; k < end; k += ld) {
    const int64_t n = Min(ld, end - k);
    const T *keys = static_cast<const T*>(b.keys) + k * width, *values = static_cast<const T*>(b.values) + k * value_width;
    const float *key_scale = b.key_scale ? b.key_scale + k : nullptr, *value_scale = b.value_scale ? b.value_scale + k : nullptr;
    // Four rows at a time have what any of them sees.
    const auto seen = [&](int64_t row) __attribute__((always_inline)) { return Clamp(b.visible[row] - k, 0, n); };
    int64_t counts[AttentionBlock::kMaxRows / 4];
    for (int64_t r = 0; r < b.rows; r += 4) {
      counts[r / 4] = 0;
      for (int64_t i = r; i < Min(r + 4, b.rows); ++i)
        if (seen(i) > counts[r / 4]) counts[r / 4] = seen(i);
    }

    if (few) {
      int64_t r = 0;
      for (; r + 4 <= b.rows; r += 4) DotKeys<V, 4>(b.query + r * width, keys, width, n, scores + r * ld, ld);
      for (; r + 2 <= b.rows; r += 2) DotKeys<V, 2>(b.query + r * width, keys, width, n, scores + r * ld, ld);
      for (; r < b.rows; ++r) DotKeys<V, 1>(b.query + r * width, keys, width, n, scores + r * ld, ld);
    } else {
      for (int64_t d = 0; d < width || d == 0; d += kPiece) {
        const int64_t columns = Min(kPiece, width - d);
        TransposeKeys<V>(keys + d, width, n, columns, key_scale, piece);
        for (int64_t r = 0; r < b.rows; r += 4)
          Multiply<V, float>(Min(4, b.rows - r), {RoundUp(counts[r / 4], L), columns, b.query + r * width + d, width, piece, kKeys, scores + r * kKeys, kKeys, d > 0});
      }
    }

    int64_t held = -1;
    for (int64_t r = 0; r < b.rows; ++r) {
      const int64_t count = few ? n : counts[r / 4], visible = seen(r);
      const ScoreRow row{scores + r * ld, visible, count, few ? key_scale : nullptr, few ? value_scale : nullptr, Bias<V>(b, r, k, n, bias, &held)};
      const float factor = Weigh<V>(row, b.scale, b.most + r, b.sum + r);
      if (factor == 1) continue;
      float* results = b.results + r * value_width;
      int64_t d = 0;
      for (; d + L <= value_width; d += L) V::Store(results + d, V::Load(results + d) * factor);
      for (; d < value_width; ++d) results[d] *= factor;
    }

    if (few) {
      Multiply<V, T>(b.rows, {value_width, n, scores, ld, values, value_width, b.results, value_width, true});
    } else {
      for (int64_t d = 0; d < value_width; d += kPiece) {
        const int64_t columns = Min(kPiece, value_width - d);
        const float* from;
        int64_t from_ld;
        if constexpr (sizeof(T) == 1) {
          WidenValues<V>(values + d, value_width, n, columns, value_scale, piece);
          from = piece, from_ld = kPiece;
        } else {
          from = values + d, from_ld = value_width;
        }
        for (int64_t r = 0; r < b.rows; r += 4)
          Multiply<V, float>(Min(4, b.rows - r), {columns, counts[r / 4], scores + r * kKeys, kKeys, from, from_ld, b.results + r * value_width + d, value_width, true});
      }
    }
  }
}

}  // namespace dovetail::lanes
