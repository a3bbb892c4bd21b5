// An attention mask that is provably "row i attends keys 0..positions[i]" becomes the operand `positions`, so that neither the mask
// nor the keys behind the bound are touched. Two spellings: rows of a constant lower triangle picked by an index, and
// iota(T) <= positions[:, None]. A negative position becomes an error; the first spelling would count it
// from the end, the second would let through no key.
#include <cstring>

#include "passes/match.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

template <class T>
bool Elements(const Constant& c, std::vector<T>& out) {
  if (!c.data_known || c.nbytes() > (size_t{1} << 26)) return false;
  out.resize(c.nbytes() / sizeof(T));
  c.CopyTo(reinterpret_cast<std::byte*>(out.data()));
  return true;
}

bool IsLowerTriangle(const Constant& c) {
  if (c.type.dtype != DType::kBool || c.type.rank() != 2 || c.type.shape[0] != c.type.shape[1]) return false;
  std::vector<uint8_t> m;
  if (!Elements(c, m)) return false;
  const size_t n = static_cast<size_t>(c.type.shape[0].value());
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j)
      if ((m[i * n + j] != 0) != (j <= i)) return false;
  return true;
}

// 0, 1, 2... along the last dim, every other dim 1: a constant, or an arange too long to be folded.
bool IsIota(const Module& module, const Graph& g, ValueId v) {
  const Node* view = g.producer_if(v, OpId::kView);
  if (view && g.type(v).rank() > 0 && g.type(v).shape.numel() == g.type(v).shape.back()) v = view->operands[0];
  if (const Node* range = g.producer_if(v, OpId::kArange))
    return g.type(v).dtype == DType::kI64 && IsNumber(GetAttr(*range, "start"), 0) && IsNumber(GetAttr(*range, "step"), 1);
  const Constant* constant = GetConstant(module, g, v);
  if (!constant) return false;
  const Constant& c = *constant;
  if (c.type.dtype != DType::kI64 || c.type.rank() == 0 || c.type.shape.numel() != c.type.shape.back()) return false;
  std::vector<int64_t> elements;
  if (!Elements(c, elements)) return false;
  for (size_t i = 0; i < elements.size(); ++i)
    if (elements[i] != static_cast<int64_t>(i)) return false;
  return true;
}

// The i64[S] that a mask with last dims [S,T] compares with iota(T), or kNone. May emit a view.
Result<ValueId> MatchPositions(RewriteContext& c, ValueId mask, Dim s, Dim t) {
  const Graph& g = c.graph;
  // A view that only adds leading ones.
  while (const Node* view = g.producer_if(mask, OpId::kView)) {
    const Shape &from = g.type(view->operands[0]).shape, &to = g.type(mask).shape;
    if (from.rank() < 2 || to.rank() < 2 || from.back() != to.back() || from[from.rank() - 2] != to[to.rank() - 2] || from.numel() != to.numel()) break;
    mask = view->operands[0];
  }
  const Shape shape = g.type(mask).shape;
  if (shape.rank() < 2 || shape.back() != t || shape[shape.rank() - 2] != s || shape.numel() != s * t) return kNone;
  if (const Node* index = g.producer_if(mask, OpId::kIndex)) {
    const Constant* table = GetConstant(c.module, g, index->operands[0]);
    if (index->operands.size() != 2 || index->operands[1] == kNone || g.type(index->operands[1]).rank() != 1) return kNone;
    return table && g.type(index->operands[1]).dtype == DType::kI64 && IsLowerTriangle(*table) ? index->operands[1] : kNone;
  }
  for (const auto& [op, iota, rows] : {std::tuple(OpId::kLe, 0, 1), std::tuple(OpId::kGe, 1, 0)}) {
    const Node* compare = g.producer_if(mask, op);
    if (!compare) continue;
    const ValueId keys = compare->operands[static_cast<size_t>(iota)];
    const ValueId positions = compare->operands[static_cast<size_t>(rows)];
    const Shape p = g.type(positions).shape;
    if (!IsIota(c.module, g, keys) || g.type(keys).shape.back() != t || g.type(positions).dtype != DType::kI64) continue;
    if (p.rank() < 2 || p.back() != Dim(1) || p[p.rank() - 2] != s || p.numel() != s) continue;
    const Node* view = g.producer_if(positions, OpId::kView);
    if (view && g.type(view->operands[0]).shape == Shape{s}) return view->operands[0];
    return c.builder.Emit(OpId::kView, {positions}, {{"size", std::vector<Dim>{s}}});
  }
  return kNone;
}

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  if (c.graph.node(id).op != OpId::kAttention) return Replacement();
  std::vector<ValueId> operands = c.graph.node(id).operands;
  std::vector<Attr> attrs = c.graph.node(id).attrs;
  if (operands[3] == kNone || operands[4] != kNone || GetAttr(c.graph.node(id), "is_causal").Bool()) return Replacement();
  const Shape &q = c.graph.type(operands[0]).shape, &k = c.graph.type(operands[1]).shape;
  if (q.rank() != 4) return Replacement();
  DT_ASSIGN_OR_RETURN(const ValueId positions, MatchPositions(c, operands[3], q[2], k[2]));
  if (positions == kNone) return Replacement();
  operands[3] = kNone;
  operands[4] = positions;
  DT_ASSIGN_OR_RETURN(std::vector<ValueId> results, c.builder.EmitWith(OpId::kAttention, std::move(operands), std::move(attrs)));
  return Replacement(std::move(results));
}

}  // namespace

Status CausalPositions(Module& module) {
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteModule(module, Rule));
  return OkStatus();
}

}  // namespace dovetail
