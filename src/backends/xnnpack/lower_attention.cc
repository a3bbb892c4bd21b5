#include <algorithm>
#include <cmath>

#include "backends/xnnpack/lowering.h"

namespace dovetail::xnnpack {
namespace {

void Rope(Lowering& l, const Node& n) {
  const Id x = l.Operand(GetOperand(n, "input"));
  const Shape& shape = l.shape(x);
  const size_t last = shape.rank() - 1;
  if (!shape.back().is_constant() || shape.back().value() < 2) return l.Fail("a rotary embedding of a symbolic width");
  const int64_t half = shape.back().value() / 2;
  const Id low = l.Slice(x, last, 0, half), high = l.Slice(x, last, half, half);
  const Id rotated = l.Concat({l.Unary(Kind::XNNNegate, high), low}, last);
  l.Bind(n.results[0], l.Add(l.Mul(x, l.Operand(GetOperand(n, "cos"))), l.Mul(rotated, l.Operand(GetOperand(n, "sin")))));
}

bool LeadingOnes(const Shape& s, size_t keep) {
  for (size_t i = 0; i + keep < s.rank(); ++i)
    if (s[i] != Dim(1)) return false;
  return true;
}

// softmax(q k^T scale + mask) v. The g query heads of one key head stand as one matrix of g*S rows.
void Attention(Lowering& l, const Node& n) {
  const ValueId mask_value = GetOperand(n, "attn_mask");
  if (GetOperand(n, "positions") != kNone) return l.Fail("attention with positions; it takes a float mask");
  if (mask_value != kNone && l.type(mask_value).dtype == DType::kBool) return l.Fail("attention with a bool mask; it takes a float mask");
  if (GetAttr(n, "query_by_row").Bool() || GetAttr(n, "keys_by_row").Bool()) return l.Fail("attention by row; it takes heads first");
  const Id q = l.Operand(GetOperand(n, "query")), k = l.Operand(GetOperand(n, "key")), v = l.Operand(GetOperand(n, "value"));
  const Shape qs = l.shape(q), ks = l.shape(k), vs = l.shape(v);
  const size_t r = qs.rank();
  const Dim heads = qs[r - 3], kv_heads = ks[r - 3], rows = qs[r - 2], keys = ks[r - 2], width = qs[r - 1];
  if (!width.is_constant() || width.value() < 1) return l.Fail("attention of a symbolic width");
  const Attr& scale_attr = GetAttr(n, "scale");
  const double scale = scale_attr.is_none() ? 1 / std::sqrt(static_cast<double>(width.value())) : scale_attr.Number();
  Id mask = mask_value == kNone ? kNoId : l.Operand(mask_value);
  if (GetAttr(n, "is_causal").Bool()) {
    if (!rows.is_constant() || !keys.is_constant() || rows.value() * keys.value() > (1 << 20))
      return l.Fail("causal attention of symbolic length, or of more than 2^20 scores; it takes a float mask");
    std::vector<float> causal(static_cast<size_t>(rows.value() * keys.value()), 0);
    for (int64_t i = 0; i < rows.value(); ++i)
      for (int64_t j = i + 1; j < keys.value(); ++j) causal[static_cast<size_t>(i * keys.value() + j)] = -1e30f;
    const Id added = l.Data(Shape{rows, keys}, std::move(causal));
    mask = mask == kNoId ? added : l.Add(mask, added);
  }
  const Id scaled = l.Mul(q, l.Number(scale));
  const auto weigh = [&](Id scores) { return l.Softmax(mask == kNoId ? scores : l.Add(scores, mask)); };
  if (heads == kv_heads) return l.Bind(n.results[0], l.MatMul(weigh(l.MatMul(scaled, k, true)), v, false));

  if (!heads.is_constant() || !kv_heads.is_constant() || kv_heads.value() == 0)
    return l.Fail("grouped attention of a symbolic number of heads");
  if (mask != kNoId && !LeadingOnes(l.shape(mask), 2)) return l.Fail("grouped attention with a mask per batch or head");
  const Dim group = heads.value() / kv_heads.value();
  const Shape batch = r == 4 ? Shape{qs[0]} : Shape{};
  const auto with_batch = [&](std::initializer_list<Dim> dims) {
    Shape s = batch;
    for (Dim d : dims) s.push_back(d);
    return s;
  };
  Id y;
  if (keys.is_constant()) {
    const Id folded = l.Reshape(scaled, with_batch({kv_heads, group * rows, width}));
    Id scores = l.MatMul(folded, k, true);
    if (mask != kNoId) {
      scores = l.Reshape(scores, with_batch({kv_heads, group, rows, keys}));
      scores = l.Reshape(weigh(scores), with_batch({kv_heads, group * rows, keys}));
    } else {
      scores = weigh(scores);
    }
    y = l.MatMul(scores, v, false);
  } else {
    // A reshape can leave one size open only, so the group is a batch dim that keys and values broadcast over.
    const Id split = l.Reshape(scaled, with_batch({kv_heads, group, rows, width}));
    const Id key = l.Reshape(k, with_batch({kv_heads, Dim(1), keys, width})),
             value = l.Reshape(v, with_batch({kv_heads, Dim(1), keys, vs[r - 1]}));
    y = l.MatMul(weigh(l.MatMul(split, key, true)), value, false);
  }
  l.Bind(n.results[0], l.Reshape(y, l.type(n.results[0]).shape));
}

}  // namespace

LowerFn FindAttention(OpId op) {
  switch (op) {
    case OpId::kRope: return Rope;
    case OpId::kAttention: return Attention;
    default: return nullptr;
  }
}

}  // namespace dovetail::xnnpack
