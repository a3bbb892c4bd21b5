// Attention reads what projections leave, [batch, rows, heads, width], and writes it as the next projection wants it: permutations to [batch, heads, rows,
// width] and back go into the attributes query_by_row and keys_by_row. A rope between moves before the permutation. For our kernels, outside regions.
#include "ir/rewrite.h"
#include "ops/infer_util.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

// x of permute(x, [0, 2, 1, 3]), else kNone.
ValueId MatchSwap(const Graph& g, ValueId v) {
  const Node* n = g.producer_if(v, OpId::kPermute);
  if (!n || g.type(v).rank() != 4) return kNone;
  const std::span<const Dim> dims = DimsOf(GetAttr(*n, "dims"));
  constexpr int64_t kSwap[] = {0, 2, 1, 3};
  for (size_t i = 0; i < 4; ++i)
    if (dims[i] != Dim(kSwap[i]) && dims[i] != Dim(kSwap[i] - 4)) return kNone;
  return n->operands[0];
}
Result<ValueId> Swap(Builder& b, ValueId v) { return b.Emit(OpId::kPermute, {v}, {{"dims", Attr::Ints({0, 2, 1, 3})}}); }

// A table of rope for [batch, heads, rows, width], which is alike for all heads, as one for [batch, rows, heads, width]; else kNone.
Result<ValueId> SwapTable(Builder& b, ValueId table) {
  const Shape s = b.type(table).shape;
  if (s.rank() < 2 || s.rank() > 4 || (s.rank() > 2 && s[s.rank() - 3] != Dim(1))) return kNone;
  const std::vector<Dim> size = {s.rank() == 4 ? s[0] : Dim(1), s[s.rank() - 2], Dim(1), s.back()};
  return b.Emit(OpId::kView, {table}, {{"size", size}});
}

// What the query is a permutation of, or kNone.
Result<ValueId> QueryByRow(RewriteContext& c, ValueId query) {
  const Graph& g = c.graph;
  if (const ValueId x = MatchSwap(g, query); x != kNone) return x;
  const Node* rope = g.producer_if(query, OpId::kRope);
  if (!rope || c.use_count(query) != 1) return kNone;
  const ValueId x = MatchSwap(g, rope->operands[0]), cos = rope->operands[1], sin = rope->operands[2];
  if (x == kNone) return kNone;
  DT_ASSIGN_OR_RETURN(const ValueId by_row_cos, SwapTable(c.builder, cos));
  DT_ASSIGN_OR_RETURN(const ValueId by_row_sin, SwapTable(c.builder, sin));
  if (by_row_cos == kNone || by_row_sin == kNone) return kNone;
  return c.builder.Emit(OpId::kRope, {x, by_row_cos, by_row_sin});
}

Result<Replacement> Absorb(RewriteContext& c, NodeId id) {
  const OpId op = c.graph.node(id).op;
  if (op != OpId::kAttention && op != OpId::kQuantizedAttention) return Replacement();
  std::vector<ValueId> operands = c.graph.node(id).operands;
  std::vector<Attr> attrs = c.graph.node(id).attrs;
  const auto attr = [&](std::string_view name) -> Attr& { return attrs[static_cast<size_t>(GetSchema(op).Find(name)->index)]; };
  if (c.graph.type(operands[0]).rank() != 4 || attr("query_by_row").Bool() || attr("keys_by_row").Bool()) return Replacement();
  const ValueId key = MatchSwap(c.graph, operands[1]), value = MatchSwap(c.graph, operands[2]);
  const bool keys = op == OpId::kAttention && key != kNone && value != kNone;
  if (keys) operands[1] = key, operands[2] = value, attr("keys_by_row") = true;
  DT_ASSIGN_OR_RETURN(const ValueId query, QueryByRow(c, operands[0]));
  if (query != kNone) operands[0] = query, attr("query_by_row") = true;
  if (!keys && query == kNone) return Replacement();
  DT_ASSIGN_OR_RETURN(std::vector<ValueId> results, c.builder.EmitWith(op, std::move(operands), std::move(attrs)));
  if (query != kNone) {
    DT_ASSIGN_OR_RETURN(results[0], Swap(c.builder, results[0]));
  }
  return Replacement(std::move(results));
}

Result<Replacement> Cancel(RewriteContext& c, NodeId id) {
  const Node& n = c.graph.node(id);
  if (n.op != OpId::kPermute) return Replacement();
  const ValueId inner = MatchSwap(c.graph, n.results[0]), x = inner == kNone ? kNone : MatchSwap(c.graph, inner);
  return x == kNone ? Replacement() : Replacement(std::vector<ValueId>{x});
}

}  // namespace

Status AttendByRow(Module& module) {
  DT_ASSIGN_OR_RETURN(const bool changed, RewriteModule(module, Absorb));
  if (!changed) return OkStatus();
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool cancelled, RewriteModule(module, Cancel));
  return RemoveCommonNodes(module);  // layers that rotate by the same tables
}

}  // namespace dovetail
