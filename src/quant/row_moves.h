// Operators that move whole rows (elements along the last dim) or replace some of them: what they do to a tensor they can do to rows of int8
// and to their scales alike, so that a row nobody writes keeps its integers bit for bit.
#pragma once

#include <vector>

#include "ir/rewrite.h"

namespace dovetail {

// Rows of int8 with their scales: the operands of a dequantize_rows.
struct RowPair {
  ValueId rows, scale;
};
// That `v` is dequantize_rows of, or nullopt.
std::optional<RowPair> PairOf(const Graph& graph, ValueId v);

// The operands of `n` whose rows its result holds (indices into n.operands), f32 all; empty if it does something else than move rows.
std::vector<size_t> RowOperands(const Module& module, const Graph& graph, const Node& n);

// The pair that node `id` (one with RowOperands) makes of those of its operands that are pairs and of the others quantized.
Result<RowPair> MovePairs(RewriteContext& c, NodeId id);

// quantize_rows(v).
Result<RowPair> QuantizeRows(Builder& builder, ValueId v);

}  // namespace dovetail
