// The arguments of attention as kernels want them.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>

#include "ops/advanced_index.h"
#include "ops/op_def.h"

namespace dovetail {

struct AttentionArgs {
  int64_t batch, heads, kv_heads, rows, keys, width, value_width;
  double scale;
  bool causal;
  bool query_by_row, keys_by_row;           // [batch, rows, heads, width] rather than [batch, heads, rows, width]
  TensorView mask, positions;               // absent: dtype kNone
  std::array<int64_t, 3> mask_strides{};    // of batch, head and row; 0 where it broadcasts
  int64_t mask_key_stride = 0;

  // `optional`: the operand that is the mask; the positions follow it.
  explicit AttentionArgs(const KernelContext& c, size_t optional = 3) {
    const TensorView &q = c.in(0), &k = c.in(1), &v = c.in(2);
    const size_t r = q.rank;
    query_by_row = c.attr(2).Bool(), keys_by_row = c.attr(3).Bool();
    batch = r == 4 ? q.sizes[0] : 1;
    heads = q.sizes[r - (query_by_row ? 2 : 3)], rows = q.sizes[r - (query_by_row ? 3 : 2)], width = q.sizes[r - 1];
    kv_heads = k.sizes[r - (keys_by_row ? 2 : 3)], keys = k.sizes[r - (keys_by_row ? 3 : 2)], value_width = v.sizes[r - 1];
    causal = c.attr(0).Bool();
    scale = c.attr(1).Number(1 / std::sqrt(static_cast<double>(width)));
    if (c.has(optional)) {
      mask = c.in(optional);
      const std::array<int64_t*, 4> strides = {&mask_strides[0], &mask_strides[1], &mask_strides[2], &mask_key_stride};
      for (size_t i = 0; i < mask.rank; ++i)
        if (mask.sizes[i] != 1) *strides[4 - mask.rank + i] = mask.stride(i);
    }
    if (c.has(optional + 1)) positions = c.in(optional + 1);
  }

  // Where row `row` of head `head` (counted through the batch) is in the query, and in the result: so many rows precede it.
  int64_t QueryRow(int64_t head, int64_t row) const {
    return query_by_row ? (head / heads * rows + row) * heads + head % heads : head * rows + row;
  }
  // The same of key 0 of a key/value head, and how many rows are from one key to the next.
  int64_t FirstKey(int64_t kv_head) const { return keys_by_row ? kv_head / kv_heads * keys * kv_heads + kv_head % kv_heads : kv_head * keys; }
  int64_t KeyStep() const { return keys_by_row ? kv_heads : 1; }

  // Offset in the mask of the row's first key.
  int64_t MaskRow(int64_t b, int64_t head, int64_t row) const { return b * mask_strides[0] + head * mask_strides[1] + row * mask_strides[2]; }
  // How many keys, from the first, row `row` may attend by `positions` and `is_causal`.
  int64_t KeysOf(int64_t row) const {
    int64_t n = keys;
    if (positions.present()) n = std::min(n - 1, IndexAt(positions, row)) + 1;
    return causal ? std::min(n, row + 1) : n;
  }
  // A position past the keys lets its row see all of them, as the mask "key <= position" does.
  Status CheckPositions() const {
    for (int64_t i = 0; positions.present() && i < rows; ++i) {
      const int64_t p = IndexAt(positions, i);
      if (p < 0) return OutOfRange("attention: position ", p, " of row ", i, " is negative");
    }
    return OkStatus();
  }
};

}  // namespace dovetail
