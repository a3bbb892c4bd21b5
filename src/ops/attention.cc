#include <vector>

#include "ops/attention_args.h"
#include "ops/dispatch.h"
#include "ops/infer_util.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType &q = c.operand(0), &k = c.operand(1), &v = c.operand(2);
  DT_RETURN_IF_ERROR(RequireRank(q, 3, 4, "attention's query"));
  DT_RETURN_IF_ERROR(RequireFloat(q, "attention"));
  const size_t r = q.rank();
  const auto refuse = [&](std::string_view why) {
    return InvalidArgument("attention of a query ", q.ToString(), ", key ", k.ToString(), " and value ", v.ToString(), ": ", why);
  };
  if (k.rank() != r || v.rank() != r) return refuse("the ranks differ");
  if (k.dtype != q.dtype || v.dtype != q.dtype) return refuse("the dtypes differ");
  if (r == 4 && (k.shape[0] != q.shape[0] || v.shape[0] != q.shape[0])) return refuse("the batches differ");
  const size_t q_rows = r - (c.attr(2).Bool() ? 3 : 2), k_rows = r - (c.attr(3).Bool() ? 3 : 2), q_heads = 2 * r - 5 - q_rows, k_heads = 2 * r - 5 - k_rows;
  const Dim heads = q.shape[q_heads], kv_heads = k.shape[k_heads], rows = q.shape[q_rows], keys = k.shape[k_rows];
  if (v.shape[k_heads] != kv_heads || v.shape[k_rows] != keys) return refuse("key and value have different heads or lengths");
  if (k.shape[r - 1] != q.shape[r - 1]) return refuse("query and key have different widths");
  if (heads != kv_heads && (!heads.is_constant() || !kv_heads.is_constant() || kv_heads.value() == 0 || heads.value() % kv_heads.value() != 0))
    return refuse("the heads of the query are not a multiple of those of the key");
  Shape scores = r == 4 ? Shape{q.shape[0], heads, rows, keys} : Shape{heads, rows, keys};
  if (c.has(3)) {
    const TensorType& mask = c.operand(3);
    const Result<Shape> shape = Broadcast(scores, mask.shape);
    if (!shape.ok() || !(*shape == scores) || (mask.dtype != DType::kBool && !IsFloat(mask.dtype)))
      return InvalidArgument("attention with a mask ", mask.ToString(), "; it must be bool or float and broadcast to [", scores.ToString(), "]");
  }
  if (c.has(4)) {
    DT_RETURN_IF_ERROR(RequireIndex(c.operand(4), "attention's positions"));
    if (!(c.operand(4).shape == Shape{rows}))
      return InvalidArgument("attention with positions [", c.operand(4).shape.ToString(), "]; they must be [", rows.ToString(), "]");
  }
  Shape shape = q.shape;
  shape[r - 1] = v.shape[r - 1];
  return SetResult(c, 0, q.dtype, shape);
}

Status Reference(const KernelContext& c) {
  const AttentionArgs a(c);
  DT_RETURN_IF_ERROR(a.CheckPositions());
  std::vector<double> weights(static_cast<size_t>(a.keys));
  return DispatchFloat(c.out().dtype, [&]<class T>() -> Status {
    for (int64_t i = 0; i < a.batch * a.heads * a.rows; ++i) {
      const int64_t row = i % a.rows, head = i / a.rows % a.heads, b = i / a.rows / a.heads;
      const int64_t kv = b * a.kv_heads + head / (a.heads / a.kv_heads), at = a.QueryRow(i / a.rows, row), step = a.KeyStep();
      T* out = c.out().as<T>() + at * a.value_width;
      const T* query = c.in(0).as<T>() + at * a.width;
      const T* key = c.in(1).as<T>() + a.FirstKey(kv) * a.width;
      const T* value = c.in(2).as<T>() + a.FirstKey(kv) * a.value_width;
      const int64_t keys = a.KeysOf(row);
      double most = -INFINITY, sum = 0;
      for (int64_t k = 0; k < keys; ++k) {
        double score = 0;
        for (int64_t d = 0; d < a.width; ++d) score += static_cast<double>(Load(query[d])) * static_cast<double>(Load(key[k * step * a.width + d]));
        score *= a.scale;
        const int64_t mask = a.MaskRow(b, head, row) + k * a.mask_key_stride;
        if (a.mask.dtype == DType::kBool) score = Reader<BoolElement>(a.mask)[mask] ? score : -INFINITY;
        else if (a.mask.present()) score = Reader<double>(a.mask)[mask] == -INFINITY ? -INFINITY : score + Reader<double>(a.mask)[mask];
        weights[static_cast<size_t>(k)] = score;
        most = std::max(most, score);
      }
      // A key of score -inf has no weight, also where all have it.
      for (int64_t k = 0; k < keys; ++k) {
        double& w = weights[static_cast<size_t>(k)];
        w = w == -INFINITY ? 0 : std::exp(w - most);
        sum += w;
      }
      for (int64_t d = 0; d < a.value_width; ++d) {
        double total = 0;
        for (int64_t k = 0; k < keys; ++k)
          if (const double w = weights[static_cast<size_t>(k)]; w != 0) total += w * static_cast<double>(Load(value[k * step * a.value_width + d]));
        out[d] = Convert<T>(sum == 0 ? 0.0 : total / sum);
      }
    }
    return OkStatus();
  });
}

}  // namespace

// softmax(query @ key^T * scale + mask) @ value. Query head h uses key/value head h / (heads / kv_heads). Row i attends the keys that all
// of these allow: attn_mask (bool: true; float: more than -inf, and added to the scores; broadcastable to [batch, heads, rows, keys]), positions (keys
// 0..positions[i]), is_causal (keys 0..i). A row that attends nothing gives zeros. Batch dims are optional, of all three alike.
// Tensors are [batch, heads, rows, width], or [batch, rows, heads, width], as projections leave them: query and result with query_by_row, key and
// value with keys_by_row.
constinit const OpDef kOpAttention = {
    "attention",
    "attention(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, Tensor? positions=None, bool is_causal=False, "
    "float? scale=None, bool query_by_row=False, bool keys_by_row=False) -> Tensor",
    "",
    "dovetail::attention.out",
    kFused,
    Infer,
    Reference};

}  // namespace dovetail
