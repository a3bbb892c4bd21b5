// VectorKernels::attend, over the vectors V of an instruction set (lanes.h).
//
// Attention by blocks of keys with a running maximum and sum per row, so that no row of all weights is ever kept (Dao et al.,
// "FlashAttention", 2022). With many rows, a block's keys are first transposed and its int8 values made floats, in a piece of memory that all
// rows use; scores and results are then both products of a few rows with a matrix whose rows are contiguous. With few rows that would cost more
// than it saves: they read keys and values where they stand, int8 becoming floats in registers.
#pragma once

#include "kernels/lanes.h"
#include "kernels/product_lanes.h"
#include "kernels/vector_kernels.h"

namespace dovetail::lanes {

constexpr int64_t kKeys = 128;         // of a block, at most
constexpr int64_t kPieceFloats = 8192;  // of a block's keys or values, transposed or made floats together
constexpr int64_t kFewRows = 8;         // with fewer, keys and values are used where they stand
constexpr int64_t kFewRowsKeys = AttentionBlock::kMaxRows * kKeys / kFewRows;
constexpr float kNone = -__builtin_inff();

// One row's scores of a block of keys.
struct ScoreRow {
  float* scores;  // room for whole vectors
  int64_t visible, count;  // keys that count, and keys whose weights are read
  const float* bias;  // or null; readable up to a whole vector
  float *most, *sum;
};
// What is still to be done with the scores.
struct Scales {
  float scale = 1;
  const float *key = nullptr, *value = nullptr;  // or null
};

// The scores of R rows become weights; `factors` are those by which the rows' earlier results shrink. kRaw: without the scales.
template <class V, int R, bool kRaw>
void Weigh(const ScoreRow* rows, const Scales& scales, float* factors) {
  using Floats = typename V::Floats;
  constexpr int64_t L = V::kLanes;
  Floats largest[R], total[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const ScoreRow& row = rows[r];
    float* s = row.scores;
    Floats most = V::Splat(kNone);
    int64_t k = 0;
    const auto take = [&](int64_t n) __attribute__((always_inline)) {
      Floats x = V::Load(s + k);
      if constexpr (kRaw) {
        x *= scales.scale;
        if (scales.key) x *= n == L ? V::Load(scales.key + k) : V::LoadFirst(scales.key + k, n);
      }
      if (row.bias) {  // -inf also where the score is no number
        const Floats bias = V::Load(row.bias + k);
        x = bias == kNone ? bias : x + bias;
      }
      if (n < L) x = V::First(x, n, V::Splat(kNone));
      most = V::Max(x, most);
      if (kRaw || row.bias || n < L) V::Store(s + k, x);
    };
    for (; k + L <= row.visible; k += L) take(L);
    if (k < row.visible) take(row.visible - k);
    largest[r] = most;
  }

  float base[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const float before = *rows[r].most, larger = V::MaxLane(largest[r]), now = larger > before ? larger : before;
    // While a row has seen nothing, its maximum is -inf, and -inf - -inf no number.
    base[r] = now == kNone ? 0 : now;
    factors[r] = before == now ? 1 : before == kNone ? 0 : V::ExpOfNegative(V::Splat(before - base[r]))[0];
    *rows[r].most = now;
  }

#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
    const ScoreRow& row = rows[r];
    float* s = row.scores;
    const int64_t weighed = RoundUp(row.visible, L), end = RoundUp(row.count, L);
    Floats sum = {};
    for (int64_t k = 0; k < weighed; k += L) {
      const Floats weights = V::ExpOfNegative(V::Load(s + k) - base[r]);
      sum += weights;
      if (!kRaw || !scales.value) V::Store(s + k, weights);
      else V::Store(s + k, weights * (k + L <= row.visible ? V::Load(scales.value + k) : V::LoadFirst(scales.value + k, row.visible - k)));
    }
    for (int64_t k = weighed; k < end; k += L) V::Store(s + k, Floats{});
    total[r] = sum;
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) *rows[r].sum = *rows[r].sum * factors[r] + V::Sum(total[r]);
}

template <class V>
bool AllZero(const float* x, int64_t n) {
  typename V::Floats others = {};
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) others += V::Load(x + i) == 0.0f ? typename V::Floats{} : V::Splat(1);
  if (i < n) others += V::LoadFirst(x + i, n - i) == 0.0f ? typename V::Floats{} : V::Splat(1);
  return V::Sum(others) == 0;
}

// What to add to the scores of keys [key, key + n): the mask itself where it is such, else a copy in `memory`. Rows that share a
// row of the mask share the copy, and where nothing is added there is none.
template <class V>
class Biases {
 public:
  Biases(const AttentionBlock& b, int64_t key, int64_t n, float* memory) : b_(b), key_(key), n_(n), memory_(memory) {}

  const float* Of(int64_t row) {
    if (!b_.keep && !b_.bias) return nullptr;
    const int64_t at = b_.mask_at[row] + key_ * b_.mask_stride;
    if (at == held_) return found_;
    held_ = at;
    return found_ = Find(at);
  }
  // Whether the biases of rows [row, row + 4) can be used at the same time.
  bool Coexist(int64_t row) const {
    const int64_t* at = b_.mask_at + row;
    return (!b_.keep && !b_.bias) || InPlace() || (at[0] == at[1] && at[0] == at[2] && at[0] == at[3]);
  }

 private:
  bool InPlace() const { return b_.bias && b_.mask_stride == 1 && n_ % V::kLanes == 0; }
  const float* Find(int64_t at) {
    if (InPlace()) return AllZero<V>(b_.bias + at, n_) ? nullptr : b_.bias + at;
    int64_t i = 0;
    if (b_.keep && b_.mask_stride == 1) {
      const auto* keep = reinterpret_cast<const int8_t*>(b_.keep + at);
      for (; i + V::kLanes <= n_; i += V::kLanes) V::Store(memory_ + i, V::Load(keep + i) == 0.0f ? V::Splat(kNone) : V::Splat(0));
    }
    for (; i < n_; ++i) {
      const int64_t from = at + i * b_.mask_stride;
      memory_[i] = b_.bias ? b_.bias[from] : b_.keep[from] ? 0 : kNone;
    }
    return AllZero<V>(memory_, n_) ? nullptr : memory_;
  }

  const AttentionBlock& b_;
  const int64_t key_, n_;
  float* memory_;
  int64_t held_ = -1;
  const float* found_ = nullptr;
};

template <class V>
void Shrink(float* x, float factor, int64_t n) {
  int64_t d = 0;
  for (; d + V::kLanes <= n; d += V::kLanes) V::Store(x + d, V::Load(x + d) * factor);
  for (; d < n; ++d) x[d] *= factor;
}

// Keys and values are read where they stand.
template <class V, class T>
void AttendFew(const AttentionBlock& b, int64_t end) {
  constexpr int64_t ld = kFewRowsKeys;
  alignas(64) float scores[kFewRows * ld], memory[ld];
  float* by_row[kFewRows];
  for (int64_t r = 0; r < b.rows; ++r) {
    by_row[r] = scores + r * ld;
    std::memset(b.results[r], 0, static_cast<size_t>(b.value_width) * sizeof(float));
  }
  for (int64_t k = b.begin; k < end; k += ld) {
    const int64_t n = Min(ld, end - k);
    const T *keys = static_cast<const T*>(b.keys) + k * b.key_stride, *values = static_cast<const T*>(b.values) + k * b.value_stride;
    const Scales scales{b.scale, b.key_scale ? b.key_scale + k : nullptr, b.value_scale ? b.value_scale + k : nullptr};
    int64_t r = 0;
    for (; r + 4 <= b.rows; r += 4) DotKeys<V, 4>(b.query + r, b.width, keys, b.key_stride, n, by_row[r], ld);
    for (; r + 2 <= b.rows; r += 2) DotKeys<V, 2>(b.query + r, b.width, keys, b.key_stride, n, by_row[r], ld);
    for (; r < b.rows; ++r) DotKeys<V, 1>(b.query + r, b.width, keys, b.key_stride, n, by_row[r], ld);

    Biases<V> biases(b, k, n, memory);
    for (r = 0; r < b.rows; ++r) {
      const ScoreRow row{by_row[r], Clamp(b.visible[r] - k, 0, n), n, biases.Of(r), b.most + r, b.sum + r};
      float factor;
      Weigh<V, 1, true>(&row, scales, &factor);
      if (factor != 1 && k > b.begin) Shrink<V>(b.results[r], factor, b.value_width);
    }
    Multiply<V, T>(b.rows, {b.value_width, n, by_row, values, b.value_stride, b.results, true});
  }
}

// A block's keys are transposed for all rows; then each four rows get their scores, weights and results. Keys or values too wide for that go by pieces, each of
// them for all rows.
template <class V, class T>
void AttendMany(const AttentionBlock& b, int64_t end) {
  constexpr int64_t L = V::kLanes, kMaxRows = AttentionBlock::kMaxRows;
  const int64_t block = b.width <= 64 && b.value_width <= 64 ? kKeys : kKeys / 2, piece = kPieceFloats / block;
  const bool at_once = b.width <= piece && b.value_width <= piece;
  alignas(64) float scores[kMaxRows * kKeys / 2], keys_piece[kPieceFloats], values_piece[kPieceFloats], memory[kKeys];
  for (int64_t k = b.begin; k < end || k == b.begin; k += block) {
    const int64_t n = Clamp(end - k, 0, block);
    const bool first = k == b.begin;
    const T *keys = static_cast<const T*>(b.keys) + k * b.key_stride, *values = static_cast<const T*>(b.values) + k * b.value_stride;
    Biases<V> biases(b, k, n, memory);

    // Of the four rows from r: their number, what any of them sees, and where their scores are.
    int64_t rows, count, visible[4];
    float* by_row[4];
    const auto take = [&](int64_t r) __attribute__((always_inline)) {
      rows = Min(4, b.rows - r);
      count = 0;
      for (int64_t i = 0; i < rows; ++i) {
        visible[i] = Clamp(b.visible[r + i] - k, 0, n);
        if (visible[i] > count) count = visible[i];
        by_row[i] = scores + (at_once ? i : r + i) * block;
      }
    };
    const auto transpose = [&](int64_t d) __attribute__((always_inline)) {
      TransposeKeys<V>(keys + d, b.key_stride, n, Min(piece, b.width - d), b.scale, b.key_scale ? b.key_scale + k : nullptr, keys_piece, block);
    };
    const auto score = [&](int64_t r, int64_t d) __attribute__((always_inline)) {
      const float* query[4];
      for (int64_t i = 0; i < rows; ++i) query[i] = b.query[r + i] + d;
      Multiply<V, float>(rows, {RoundUp(count, L), Min(piece, b.width - d), query, keys_piece, block, by_row, d > 0});
    };
    const auto weigh = [&](int64_t r) __attribute__((always_inline)) {
      ScoreRow row[4];
      float factors[4];
      const auto describe = [&](int64_t i) __attribute__((always_inline)) {
        row[i] = {by_row[i], visible[i], count, biases.Of(r + i), b.most + r + i, b.sum + r + i};
      };
      if (rows == 4 && biases.Coexist(r)) {
        for (int64_t i = 0; i < 4; ++i) describe(i);
        Weigh<V, 4, false>(row, {}, factors);
      } else {
        for (int64_t i = 0; i < rows; ++i) {
          describe(i);
          Weigh<V, 1, false>(row + i, {}, factors + i);
        }
      }
      for (int64_t i = 0; i < rows && !first; ++i)
        if (factors[i] != 1) Shrink<V>(b.results[r + i], factors[i], b.value_width);
    };
    const float* from = nullptr;
    int64_t from_ld = 0;
    const auto gather = [&](int64_t d) __attribute__((always_inline)) {
      const int64_t columns = Min(piece, b.value_width - d);
      if constexpr (sizeof(T) == sizeof(float)) {
        from = values + d, from_ld = b.value_stride;
        if (b.value_stride == b.value_width) return;
      }
      GatherValues<V>(values + d, b.value_stride, n, columns, b.value_scale ? b.value_scale + k : nullptr, values_piece);
      from = values_piece, from_ld = columns;
    };
    const auto add = [&](int64_t r, int64_t d) __attribute__((always_inline)) {
      float* results[4];
      for (int64_t i = 0; i < rows; ++i) results[i] = b.results[r + i] + d;
      Multiply<V, float>(rows, {Min(piece, b.value_width - d), count, by_row, from, from_ld, results, !first});
    };

    if (at_once) {
      transpose(0);
      gather(0);
      for (int64_t r = 0; r < b.rows; r += 4) {
        take(r);
        if (count == 0 && !first) continue;
        score(r, 0);
        weigh(r);
        add(r, 0);
      }
      continue;
    }
    for (int64_t d = 0; d < b.width || d == 0; d += piece) {
      transpose(d);
      for (int64_t r = 0; r < b.rows; r += 4) take(r), score(r, d);
    }
    for (int64_t r = 0; r < b.rows; r += 4) take(r), weigh(r);
    for (int64_t d = 0; d < b.value_width; d += piece) {
      gather(d);
      for (int64_t r = 0; r < b.rows; r += 4) take(r), add(r, d);
    }
  }
}

template <class V, class T>
void Attend(const AttentionBlock& b) {
  int64_t end = 0;
  for (int64_t r = 0; r < b.rows; ++r) {
    b.most[r] = kNone;
    b.sum[r] = 0;
    if (b.visible[r] > end) end = b.visible[r];
  }
  end = Min(end, b.end);
  if (b.rows < kFewRows) AttendFew<V, T>(b, end);
  else AttendMany<V, T>(b, end);
}

}  // namespace dovetail::lanes
