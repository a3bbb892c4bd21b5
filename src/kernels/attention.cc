// Attention by blocks of keys with a running maximum and sum per row, so that no row of all weights is ever kept (Dao et al.,
// "FlashAttention", 2022). The query heads that share a key/value head are rows of one matrix, so keys and values are read once for
// all of them. A row's keys past its last visible one are not read, unless a neighbour in its block of rows sees them.
//
// Keys and values of int8 are widened to float a piece of a block at a time; their scales go into the scores and the weights, of which
// there are fewer.
#include <algorithm>
#include <type_traits>

#include "kernels/gemm.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/simd.h"
#include "ops/attention_args.h"

namespace dovetail::kernels {
namespace {

using simd::Floats;
using simd::kLanes;

constexpr int64_t kRows = 32;  // of a block; the block of scores stays in the first cache
constexpr int64_t kKeys = 64;
constexpr int64_t kPiece = 64;  // columns that are widened together
// With fewer blocks of rows than kManyBlocks the keys are split too, into parts of kSplit, and their results merged.
constexpr int64_t kManyBlocks = 32;
constexpr int64_t kSplit = 256;
// Multiplications below which a second thread costs more than it saves.
constexpr int64_t kSmall = 65536;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What the rows of a block have gathered so far: unnormalized results, the largest score and the sum of weights relative to it.
struct Rows {
  float* results;  // [count, value_width]
  float* most;
  float* sum;
};

// One row's scores of a block of keys become weights: [0, visible) of them, the rest up to `count` get none.
struct ScoreRow {
  float* scores;  // room for a whole number of vectors
  int64_t visible, count;
  float scale;
  const float* key_scale;  // or null
  const uint8_t* keep;  // with mask_stride: the bool mask, or null
  const float* bias;    // the float mask, or null
  int64_t mask_stride;
};

// Returns the factor by which the row's earlier results and sum shrink.
DT_INLINE float Weigh(const ScoreRow& row, float* most, float* sum) {
  float* s = row.scores;
  const int64_t rounded = CeilDiv(row.count, kLanes) * kLanes;
  for (int64_t k = 0; k < row.visible; ++k) s[k] *= row.scale;
  if (row.key_scale)
    for (int64_t k = 0; k < row.visible; ++k) s[k] *= row.key_scale[k];
  if (row.keep)
    for (int64_t k = 0; k < row.visible; ++k) s[k] = row.keep[k * row.mask_stride] ? s[k] : -INFINITY;
  if (row.bias)
    for (int64_t k = 0; k < row.visible; ++k) s[k] += row.bias[k * row.mask_stride];
  for (int64_t k = row.visible; k < rounded; ++k) s[k] = -INFINITY;

  Floats largest = simd::Splat(-INFINITY);
  for (int64_t k = 0; k < rounded; k += kLanes) largest = simd::Max(simd::LoadFloats(s + k), largest);
  const float before = *most;
  *most = std::max(before, simd::MaxLane(largest));
  // While a row has seen nothing, its maximum is -inf, and -inf - -inf no number.
  const float base = *most == -INFINITY ? 0 : *most;
  Floats total = {};
  for (int64_t k = 0; k < rounded; k += kLanes) {
    const Floats weights = simd::Exp(simd::LoadFloats(s + k) - base);
    simd::StoreFloats(s + k, weights);
    total += weights;
  }
  const float factor = before == *most ? 1 : simd::Exp(before - base);
  *sum = *sum * factor + simd::Sum(total);
  return factor;
}

DT_VECTORIZED void WeighRows(const ScoreRow* rows, int64_t n, const Rows& state, int64_t width) {
  for (int64_t r = 0; r < n; ++r) {
    const float factor = Weigh(rows[r], state.most + r, state.sum + r);
    if (factor == 1) continue;
    float* results = state.results + r * width;
    for (int64_t d = 0; d < width; ++d) results[d] *= factor;
  }
}

// Each row of `to` by the factors.
DT_VECTORIZED void ScaleRows(float* to, int64_t ld, const float* __restrict factors, int64_t rows, int64_t n) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < n; ++i) to[r * ld + i] *= factors[i];
}

// [rows, columns] of int8, `width` apart, as floats, kPiece apart.
DT_VECTORIZED void Widen(float* __restrict to, const int8_t* __restrict from, int64_t width, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < columns; ++i) to[r * kPiece + i] = static_cast<float>(from[r * width + i]);
}

// MultiplyTransposed and MultiplyAdd where b may be int8.
void AddDots(MatrixProduct m, const float* b) {
  m.b = b;
  MultiplyTransposed(m);
}
void AddDots(const MatrixProduct& m, const int8_t* b) {
  alignas(64) float piece[kKeys * kPiece];
  for (int64_t d = 0; d < m.inner; d += kPiece) {
    const int64_t columns = std::min(kPiece, m.inner - d);
    Widen(piece, b + d, m.ldb, m.columns, columns);
    MultiplyTransposed({m.rows, m.columns, columns, m.a + d, m.lda, piece, kPiece, m.c, m.ldc});
  }
}
void AddSums(MatrixProduct m, const float* b) {
  m.b = b;
  MultiplyAdd(m);
}
void AddSums(const MatrixProduct& m, const int8_t* b) {
  alignas(64) float piece[kKeys * kPiece];
  for (int64_t d = 0; d < m.columns; d += kPiece) {
    const int64_t columns = std::min(kPiece, m.columns - d);
    Widen(piece, b + d, m.ldb, m.inner, columns);
    MultiplyAdd({m.rows, columns, m.inner, m.a, m.lda, piece, kPiece, m.c + d, m.ldc});
  }
}

// to += from * factor
DT_VECTORIZED void AddScaled(float* __restrict to, const float* __restrict from, float factor, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] += from[i] * factor;
}

// Divides by `sum`. False if a result is infinite or NaN.
DT_VECTORIZED bool Normalize(float* results, float sum, int64_t n) {
  const float factor = sum == 0 ? 0 : 1 / sum;
  float check = 0;
  for (int64_t i = 0; i < n; ++i) {
    results[i] *= factor;
    check += results[i] * 0;
  }
  return check == 0;
}

// T: float, or int8_t for keys and values with scales.
template <class T>
class Attend {
 public:
  static constexpr size_t kMask = std::is_same_v<T, float> ? 3 : 5;

  explicit Attend(const KernelContext& c)
      : args_(c, kMask), q_(c.in(0).as<float>()), k_(c.in(1).as<T>()), v_(c.in(2).as<T>()), out_(c.out().as<float>()) {
    if constexpr (std::is_same_v<T, int8_t>) {
      key_scale_ = c.in(3).as<float>();
      value_scale_ = c.in(4).as<float>();
    }
    group_rows_ = args_.heads / args_.kv_heads * args_.rows;
    row_blocks_ = CeilDiv(group_rows_, kRows);
  }
  const AttentionArgs& args() const { return args_; }
  int64_t blocks() const { return args_.batch * args_.kv_heads * row_blocks_; }

  // Keys that any row sees.
  int64_t Visible() const {
    int64_t n = 0;
    for (int64_t r = 0; r < args_.rows; ++r) n = std::max(n, args_.KeysOf(r));
    return n;
  }

  // A whole block of rows, straight into the result.
  void Block(int64_t block) const {
    const int64_t first = FirstRow(block);
    float most[kRows], sum[kRows];
    const Rows state{out_ + first * args_.value_width, most, sum};
    Gather(block, 0, args_.keys, state);
    for (int64_t r = 0; r < Count(block); ++r) Finish(first + r, sum[r]);
  }

  // One part of a block's keys, into memory for it; then all `splits` of them into the result.
  void Part(int64_t block, int64_t split, float* memory) const {
    Gather(block, split * kSplit, (split + 1) * kSplit, StateIn(memory + split * PartSize()));
  }
  void Merge(int64_t block, int64_t splits, float* memory) const {
    const int64_t first = FirstRow(block), width = args_.value_width;
    for (int64_t r = 0; r < Count(block); ++r) {
      float most = -INFINITY, sum = 0;
      for (int64_t s = 0; s < splits; ++s) most = std::max(most, StateIn(memory + s * PartSize()).most[r]);
      float* out = out_ + (first + r) * width;
      std::fill_n(out, width, 0.0f);
      for (int64_t s = 0; s < splits; ++s) {
        const Rows part = StateIn(memory + s * PartSize());
        if (part.sum[r] == 0) continue;
        const float factor = part.most[r] == most ? 1 : std::exp(part.most[r] - most);
        AddScaled(out, part.results + r * width, factor, width);
        sum += part.sum[r] * factor;
      }
      Finish(first + r, sum);
    }
  }
  // Floats that a part needs.
  int64_t PartSize() const { return kRows * (args_.value_width + 2); }

 private:
  Rows StateIn(float* memory) const { return {memory + 2 * kRows, memory, memory + kRows}; }
  int64_t KvHead(int64_t block) const { return block / row_blocks_; }  // counted through the batch
  // Rows are counted through [batch, heads, rows], where those of one key/value head stand together.
  int64_t FirstRow(int64_t block) const { return KvHead(block) * group_rows_ + block % row_blocks_ * kRows; }
  int64_t Count(int64_t block) const { return std::min(kRows, group_rows_ - block % row_blocks_ * kRows); }
  int64_t MaskAt(int64_t row) const {
    return args_.MaskRow(row / args_.rows / args_.heads, row / args_.rows % args_.heads, row % args_.rows);
  }

  // Attends keys [begin, end) as far as they are visible.
  void Gather(int64_t block, int64_t begin, int64_t end, const Rows& state) const {
    const int64_t first = FirstRow(block), count = Count(block), width = args_.width, value_width = args_.value_width;
    alignas(64) float scores[kRows * kKeys];
    ScoreRow rows[kRows];
    int64_t visible[kRows], most_visible = 0;
    for (int64_t r = 0; r < count; ++r) {
      state.most[r] = -INFINITY;
      state.sum[r] = 0;
      visible[r] = args_.KeysOf((first + r) % args_.rows);
      most_visible = std::max(most_visible, visible[r]);
    }
    std::fill_n(state.results, count * value_width, 0.0f);
    end = std::min(end, most_visible);
    const int64_t base = KvHead(block) * args_.keys;
    for (int64_t k = begin; k < end; k += kKeys) {
      const int64_t n = std::min(kKeys, end - k);
      std::fill_n(scores, count * kKeys, 0.0f);
      AddDots({count, n, width, q_ + first * width, width, nullptr, width, scores, kKeys}, k_ + (base + k) * width);
      for (int64_t r = 0; r < count; ++r) {
        rows[r] = {scores + r * kKeys, std::clamp<int64_t>(visible[r] - k, 0, n), n, static_cast<float>(args_.scale), nullptr, nullptr, nullptr, 0};
        if (key_scale_) rows[r].key_scale = key_scale_ + base + k;
        if (!args_.mask.present()) continue;
        const int64_t at = MaskAt(first + r) + k * args_.mask_key_stride;
        rows[r].mask_stride = args_.mask_key_stride;
        if (args_.mask.dtype == DType::kBool) rows[r].keep = args_.mask.as<uint8_t>() + at;
        else rows[r].bias = args_.mask.as<float>() + at;
      }
      WeighRows(rows, count, state, value_width);
      if (value_scale_) ScaleRows(scores, kKeys, value_scale_ + base + k, count, n);
      AddSums({count, value_width, n, scores, kKeys, nullptr, value_width, state.results, value_width}, v_ + (base + k) * value_width);
    }
  }

  void Finish(int64_t row, float sum) const {
    if (!Normalize(out_ + row * args_.value_width, sum, args_.value_width)) Carefully(row);
  }

  // Of key `k` of the head whose keys begin at `base`.
  double Score(int64_t row, int64_t base, int64_t k) const {
    const T* key = k_ + (base + k) * args_.width;
    double score = 0;
    for (int64_t d = 0; d < args_.width; ++d) score += static_cast<double>(q_[row * args_.width + d]) * static_cast<double>(key[d]);
    score *= args_.scale;
    if (key_scale_) score *= static_cast<double>(key_scale_[base + k]);
    const int64_t at = MaskAt(row) + k * args_.mask_key_stride;
    if (args_.mask.dtype == DType::kBool) return args_.mask.as<uint8_t>()[at] ? score : -INFINITY;
    return args_.mask.present() ? score + static_cast<double>(args_.mask.as<float>()[at]) : score;
  }

  // A row with a result that is no number: above, a weight of 0 times an infinite value gave NaN, though a key without weight is not
  // there at all.
  void Carefully(int64_t row) const {
    const int64_t value_width = args_.value_width, base = row / group_rows_ * args_.keys, visible = args_.KeysOf(row % args_.rows);
    float* out = out_ + row * value_width;
    double most = -INFINITY, sum = 0;
    for (int64_t k = 0; k < visible; ++k) most = std::max(most, Score(row, base, k));
    std::fill_n(out, value_width, 0.0f);
    for (int64_t k = 0; k < visible; ++k) {
      const double score = Score(row, base, k), weight = score == -INFINITY ? 0 : std::exp(score - most);
      if (weight == 0) continue;
      sum += weight;
      const float factor = static_cast<float>(weight) * (value_scale_ ? value_scale_[base + k] : 1);
      const T* value = v_ + (base + k) * value_width;
      for (int64_t d = 0; d < value_width; ++d) out[d] += static_cast<float>(value[d]) * factor;
    }
    Normalize(out, static_cast<float>(sum), value_width);
  }

  AttentionArgs args_;
  const float* q_;
  const T *k_, *v_;
  const float *key_scale_ = nullptr, *value_scale_ = nullptr;
  float* out_;
  int64_t group_rows_, row_blocks_;
};

template <class T>
bool HasFastPath(const KernelContext& c) {
  constexpr size_t kMask = Attend<T>::kMask;
  return c.in(0).dtype == DType::kF32 && (!c.has(kMask) || c.in(kMask).dtype == DType::kBool || c.in(kMask).dtype == DType::kF32) &&
         c.out().numel() != 0 && c.in(1).sizes[c.in(1).rank - 3u] != 0;
}

template <class T>
Status Run(const KernelContext& c, OpId op) {
  if (!HasFastPath<T>(c)) return GetOp(op).reference(c);
  const Attend<T> attend(c);
  const AttentionArgs& args = attend.args();
  DT_RETURN_IF_ERROR(args.CheckPositions());
  const int64_t blocks = attend.blocks(), visible = attend.Visible();
  struct pthreadpool* pool = args.batch * args.heads * args.rows * visible * (args.width + args.value_width) < kSmall ? nullptr : c.pool;
  const int64_t splits = blocks < kManyBlocks ? CeilDiv(visible, kSplit) : 1;
  if (splits <= 1) {
    ParallelFor(pool, blocks, [&](int64_t block) { attend.Block(block); });
    return OkStatus();
  }
  float* memory = reinterpret_cast<float*>(c.scratch.data());
  const auto part = [&](int64_t block) { return memory + block * splits * attend.PartSize(); };
  ParallelFor(pool, blocks * splits, [&](int64_t i) { attend.Part(i / splits, i % splits, part(i / splits)); });
  ParallelFor(pool, blocks, [&](int64_t block) { attend.Merge(block, splits, part(block)); });
  return OkStatus();
}

// The most that any smaller shape needs: many rows need none, but a shape of few rows that the same memory serves does.
template <class T>
size_t Scratch(const KernelContext& c) {
  if (!HasFastPath<T>(c)) return 0;
  const Attend<T> attend(c);
  const int64_t splits = CeilDiv(attend.args().keys, kSplit);
  return splits <= 1 ? 0 : static_cast<size_t>(std::min(attend.blocks(), kManyBlocks - 1) * splits * attend.PartSize()) * sizeof(float);
}

}  // namespace

Status Attention(const KernelContext& c) { return Run<float>(c, OpId::kAttention); }
size_t AttentionScratch(const KernelContext& c) { return Scratch<float>(c); }
Status QuantizedAttention(const KernelContext& c) { return Run<int8_t>(c, OpId::kQuantizedAttention); }
size_t QuantizedAttentionScratch(const KernelContext& c) { return Scratch<int8_t>(c); }

}  // namespace dovetail::kernels
