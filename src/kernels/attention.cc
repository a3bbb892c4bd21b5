// Attention in blocks of query rows, and of keys where rows are few; what a block does is in attention_lanes.h. The query heads that share a
// key/value head are rows of one matrix, so keys and values are read once for all of them.
#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "kernels/vector_kernels.h"
#include "ops/attention_args.h"

namespace dovetail::kernels {
namespace {

constexpr int64_t kRows = AttentionBlock::kMaxRows;  // of a block
// With fewer blocks of rows than kManyBlocks the keys are split too, into parts of kSplit, and their results merged.
constexpr int64_t kManyBlocks = 32;
constexpr int64_t kSplit = 256;
// Multiplications below which a second thread costs more than it saves.
constexpr int64_t kSmall = 65536;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// What the rows of a block have gathered, as in AttentionBlock.
struct Rows {
  float* results[kRows];
  float* most;
  float* sum;
};

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

  // The last rows of all heads first: where rows see ever more keys, the work that is left at the end, for whoever is idle, is in small pieces.
  int64_t InOrder(int64_t i) const {
    const int64_t kv_heads = blocks() / row_blocks_;
    return i % kv_heads * row_blocks_ + row_blocks_ - 1 - i / kv_heads;
  }

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
    Rows state{{}, most, sum};
    for (int64_t r = 0; r < Count(block); ++r) state.results[r] = Result(first + r);
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
      float* out = Result(first + r);
      std::fill_n(out, width, 0.0f);
      for (int64_t s = 0; s < splits; ++s) {
        const Rows part = StateIn(memory + s * PartSize());
        if (part.sum[r] == 0) continue;
        const float factor = part.most[r] == most ? 1 : std::exp(part.most[r] - most);
        vectors_.add_scaled(out, part.results[r], factor, width);
        sum += part.sum[r] * factor;
      }
      Finish(first + r, sum);
    }
  }
  // Floats that a part needs.
  int64_t PartSize() const { return std::min(kRows, group_rows_) * (args_.value_width + 2); }

 private:
  Rows StateIn(float* memory) const {
    const int64_t rows = std::min(kRows, group_rows_);
    Rows state{{}, memory + rows * args_.value_width, memory + rows * (args_.value_width + 1)};
    for (int64_t r = 0; r < rows; ++r) state.results[r] = memory + r * args_.value_width;
    return state;
  }
  int64_t KvHead(int64_t block) const { return block / row_blocks_; }  // counted through the batch
  // Rows are counted through [batch, heads, rows], where those of one key/value head stand together.
  int64_t FirstRow(int64_t block) const { return KvHead(block) * group_rows_ + block % row_blocks_ * kRows; }
  int64_t Count(int64_t block) const { return std::min(kRows, group_rows_ - block % row_blocks_ * kRows); }
  // Of query and result.
  int64_t At(int64_t row) const { return args_.query_by_row ? args_.QueryRow(row / args_.rows, row % args_.rows) : row; }
  float* Result(int64_t row) const { return out_ + At(row) * args_.value_width; }
  int64_t MaskAt(int64_t row) const {
    if (!args_.mask.present()) return 0;
    return args_.MaskRow(row / args_.rows / args_.heads, row / args_.rows % args_.heads, row % args_.rows);
  }

  // How many keys are left of `visible` ones, counted from the first, without those at the end of [begin, visible) that the mask leaves out.
  // A causal mask that the model looks up in a table is as good as positions so.
  int64_t Kept(int64_t at, int64_t begin, int64_t visible) const {
    if (!args_.mask.present() || args_.mask_key_stride != 1) return visible;
    if (args_.mask.dtype == DType::kF32) return begin + vectors_.length_above_none(args_.mask.as<float>() + at + begin, visible - begin);
    const uint8_t* keep = args_.mask.as<uint8_t>() + at;
    for (uint64_t word; visible - 8 >= begin; visible -= 8) {
      std::memcpy(&word, keep + visible - 8, sizeof(word));
      if (word != 0) break;
    }
    while (visible > begin && !keep[visible - 1]) --visible;
    return visible;
  }

  // Attends keys [begin, end) as far as they are visible.
  void Gather(int64_t block, int64_t begin, int64_t end, const Rows& state) const {
    const int64_t first = FirstRow(block), count = Count(block), base = args_.FirstKey(KvHead(block)), step = args_.KeyStep();
    int64_t visible[kRows], mask_at[kRows], limit = -1;
    const float* query[kRows];
    for (int64_t r = 0; r < count; ++r) {
      query[r] = q_ + At(first + r) * args_.width;
      mask_at[r] = MaskAt(first + r);
      const int64_t before = std::exchange(limit, std::min(end, args_.KeysOf((first + r) % args_.rows)));
      const bool as_before = r > 0 && mask_at[r] == mask_at[r - 1] && limit == before;
      visible[r] = as_before ? visible[r - 1] : Kept(mask_at[r], begin, limit);
    }
    AttentionBlock b{};
    b.rows = count;
    b.width = args_.width, b.value_width = args_.value_width;
    b.query = query;
    b.keys = k_ + base * args_.width, b.values = v_ + base * args_.value_width;
    b.key_stride = step * args_.width, b.value_stride = step * args_.value_width;
    if (key_scale_) b.key_scale = key_scale_ + base, b.value_scale = value_scale_ + base;
    b.begin = begin, b.end = end;
    b.visible = visible;
    b.scale = static_cast<float>(args_.scale);
    if (args_.mask.dtype == DType::kBool) b.keep = args_.mask.as<uint8_t>();
    else if (args_.mask.present()) b.bias = args_.mask.as<float>();
    b.mask_at = mask_at;
    b.mask_stride = args_.mask_key_stride;
    b.results = state.results, b.most = state.most, b.sum = state.sum;
    (std::is_same_v<T, float> ? vectors_.attend : vectors_.attend_int8)(b);
  }

  void Finish(int64_t row, float sum) const {
    if (!Normalize(Result(row), sum)) Carefully(row);
  }

  bool Normalize(float* results, float sum) const { return vectors_.scale_finite(results, sum == 0 ? 0 : 1 / sum, args_.value_width); }

  // Of key `k`, which is at row `key_row` of the keys.
  double Score(int64_t row, int64_t k, int64_t key_row) const {
    const float* query = q_ + At(row) * args_.width;
    const T* key = k_ + key_row * args_.width;
    double score = 0;
    for (int64_t d = 0; d < args_.width; ++d) score += static_cast<double>(query[d]) * static_cast<double>(key[d]);
    score *= args_.scale;
    if (key_scale_) score *= static_cast<double>(key_scale_[key_row]);
    const int64_t at = MaskAt(row) + k * args_.mask_key_stride;
    if (args_.mask.dtype == DType::kBool) return args_.mask.as<uint8_t>()[at] ? score : -INFINITY;
    if (!args_.mask.present()) return score;
    const float bias = args_.mask.as<float>()[at];
    return bias == -INFINITY ? -INFINITY : score + static_cast<double>(bias);
  }

  // A row with a result that is no number: above, a weight of 0 times an infinite value gave NaN, though a key without weight is not
  // there at all.
  void Carefully(int64_t row) const {
    const int64_t value_width = args_.value_width, visible = args_.KeysOf(row % args_.rows);
    const int64_t base = args_.FirstKey(row / group_rows_), step = args_.KeyStep();
    float* out = Result(row);
    double most = -INFINITY, sum = 0;
    for (int64_t k = 0; k < visible; ++k) most = std::max(most, Score(row, k, base + k * step));
    std::fill_n(out, value_width, 0.0f);
    for (int64_t k = 0; k < visible; ++k) {
      const int64_t at = base + k * step;
      const double score = Score(row, k, at), weight = score == -INFINITY ? 0 : std::exp(score - most);
      if (weight == 0) continue;
      sum += weight;
      const float factor = static_cast<float>(weight) * (value_scale_ ? value_scale_[at] : 1);
      const T* value = v_ + at * value_width;
      for (int64_t d = 0; d < value_width; ++d) out[d] += static_cast<float>(value[d]) * factor;
    }
    Normalize(out, static_cast<float>(sum));
  }

  AttentionArgs args_;
  const VectorKernels& vectors_ = Vectors();
  const float* q_;
  const T *k_, *v_;
  const float *key_scale_ = nullptr, *value_scale_ = nullptr;
  float* out_;
  int64_t group_rows_, row_blocks_;
};

template <class T>
bool HasFastPath(const KernelContext& c) {
  constexpr size_t kMask = Attend<T>::kMask;
  if (std::is_same_v<T, int8_t> && c.attr(3).Bool()) return false;  // the scales of a head's keys are not in one piece
  return c.in(0).dtype == DType::kF32 && (!c.has(kMask) || c.in(kMask).dtype == DType::kBool || c.in(kMask).dtype == DType::kF32) &&
         c.out().numel() != 0 && c.in(1).sizes[c.in(1).rank - 2u] != 0 && c.in(1).sizes[c.in(1).rank - 3u] != 0;
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
    ParallelFor(pool, blocks, [&](int64_t i) { attend.Block(attend.InOrder(i)); });
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
