// Recognises attention: softmax(q k^T * scale + mask) v in the spellings of exports, and takes the repetition of key and value heads
// (repeat_interleave, expand) out of existing attention nodes: grouped heads need no copies. Spelled out, of f32 only: a shorter type would
// have been rounded between the steps. A row that attends nothing, which gives NaN where no guard is spelled out, gives 0.
#include <cmath>

#include "passes/match.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

// The value [B,Hkv,T,D] if `v` [B,Hkv*g,T,D] repeats each of its heads g times, else kNone.
ValueId MatchRepeatedHeads(const Graph& g, ValueId v) {
  const Node* merge = g.producer_if(v, OpId::kView);
  if (!merge) return kNone;
  const Node* expand = g.producer_if(merge->operands[0], OpId::kExpand);
  if (!expand) return kNone;
  const Node* split = g.producer_if(expand->operands[0], OpId::kView);
  if (!split) return kNone;
  const ValueId source = split->operands[0];
  const Shape &s = g.type(source).shape, &u = g.type(expand->operands[0]).shape, &e = g.type(merge->operands[0]).shape, &m = g.type(v).shape;
  if (s.rank() != 4 || u.rank() != 5 || e.rank() != 5 || m.rank() != 4) return kNone;
  const bool unsqueezed = u[0] == s[0] && u[1] == s[1] && u[2] == Dim(1) && u[3] == s[2] && u[4] == s[3];
  const bool expanded = e[0] == u[0] && e[1] == u[1] && e[3] == u[3] && e[4] == u[4];
  const bool merged = m[0] == e[0] && m[1] == e[1] * e[2] && m[2] == e[3] && m[3] == e[4];
  return unsqueezed && expanded && merged ? source : kNone;
}

// The condition of where(condition, 0, -inf), which is a mask of booleans in another dress; else kNone.
ValueId MatchBoolMask(const Module& module, const Graph& g, ValueId v) {
  const Node* where = g.producer_if(v, OpId::kWhere);
  if (!where) return kNone;
  const auto on = SplatValue(module, g, where->operands[1]), off = SplatValue(module, g, where->operands[2]);
  if (on && off && *on == 0 && std::isinf(*off) && *off < 0) return where->operands[0];
  return kNone;
}

// Whether `a` and `b` have the same matrices, in batches of other shapes.
bool SameMatrices(const Shape& a, const Shape& b) {
  return a.rank() >= 2 && b.rank() >= 2 && a.back() == b.back() && a[a.rank() - 2] == b[b.rank() - 2];
}

// A product of rank 4, [B,H,S,K] times [B,H,K,N], whose batch dims may be flattened into one by views. The factors are of rank 4, or of rank 3
// where what is behind the view has other dims.
struct Product {
  ValueId a, b;
};
std::optional<Product> MatchProduct(const Graph& g, ValueId v) {
  const Shape out = g.type(v).shape;
  if (out.rank() != 4) return std::nullopt;
  ValueId m = v;
  while (const Node* view = g.producer_if(m, OpId::kView)) m = view->operands[0];
  const Node* n = g.producer(m);
  if (!n || (n->op != OpId::kMatmul && n->op != OpId::kBmm) || !SameMatrices(g.type(m).shape, out)) return std::nullopt;
  const auto strip = [&](ValueId x) {
    const Node* view = g.producer_if(x, OpId::kView);
    if (!view || g.type(view->operands[0]).rank() != 4 || g.type(x).rank() != 3) return x;
    return SameMatrices(g.type(view->operands[0]).shape, g.type(x).shape) ? view->operands[0] : x;
  };
  const auto same_batch = [&](const Shape& s) { return s.rank() == 4 ? s[0] == out[0] && s[1] == out[1] : s.rank() == 3 && s[0] == out[0] * out[1]; };
  const Product p{strip(n->operands[0]), strip(n->operands[1])};
  return same_batch(g.type(p.a).shape) && same_batch(g.type(p.b).shape) ? std::optional(p) : std::nullopt;
}

// A factor of a product as [B,H,.,.].
Result<ValueId> WithHeads(Builder& b, ValueId x, const Shape& out) {
  const Shape s = b.type(x).shape;
  if (s.rank() == 4) return x;
  while (const Node* view = b.graph().producer_if(x, OpId::kView)) x = view->operands[0];
  const Shape heads{out[0], out[1], s[1], s[2]};
  if (b.type(x).shape == heads) return x;
  return b.Emit(OpId::kView, {x}, {{"size", std::vector<Dim>(heads.begin(), heads.end())}});
}

// Takes factors off `v`: v = *value * factor.
double StripScale(const Module& module, const Graph& g, ValueId* v) {
  double factor = 1;
  while (true) {
    if (auto m = MatchScalar(module, g, *v, OpId::kMul)) {
      factor *= m->scalar;
      *v = m->value;
    } else if (auto d = MatchScalar(module, g, *v, OpId::kDiv); d && d->scalar != 0) {
      factor /= d->scalar;
      *v = d->value;
    } else {
      return factor;
    }
  }
}

// softmax(x) behind the guard that gives rows of -inf only the value 0: where(not any(not (x == -inf)), 0, softmax(x)). Our
// attention gives 0 for such rows.
const Node* MatchSoftmax(const Module& module, const Graph& g, ValueId v) {
  if (const Node* where = g.producer_if(v, OpId::kWhere)) {
    if (SplatValue(module, g, where->operands[1]) != 0.0) return nullptr;
    const Node* any = g.producer_if(MatchUnary(g, where->operands[0], OpId::kLogicalNot), OpId::kAny);
    const Node* softmax = g.producer_if(where->operands[2], OpId::kSoftmax);
    if (!any || !softmax || !GetAttr(*any, "keepdim").Bool() || (GetAttr(*any, "dim").Int() != -1 && GetAttr(*any, "dim").Int() != 3)) return nullptr;
    const auto [x, inf] = MatchBinary(g, MatchUnary(g, any->operands[0], OpId::kLogicalNot), OpId::kEq);
    if (x == kNone || softmax->operands[0] != x) return nullptr;
    const auto value = SplatValue(module, g, inf);
    return value && std::isinf(*value) && *value < 0 ? softmax : nullptr;
  }
  return g.producer_if(v, OpId::kSoftmax);
}

Result<Replacement> FuseSpelledOut(RewriteContext& c, ValueId result) {
  const Graph& g = c.graph;
  const Module& module = c.module;
  if (g.type(result).dtype != DType::kF32) return Replacement();
  const auto weighted = MatchProduct(g, result);
  if (!weighted) return Replacement();
  const Node* softmax = MatchSoftmax(module, g, weighted->a);
  // Weights that something else wants must be computed anyway.
  if (!softmax || c.use_count(softmax->results[0]) != 1 || c.use_count(weighted->a) != 1) return Replacement();
  const int64_t dim = GetAttr(*softmax, "dim").Int();
  if (dim != -1 && dim != 3) return Replacement();
  ValueId scores = softmax->operands[0], mask = kNone;
  if (const auto [a, b] = MatchBinary(g, scores, OpId::kAdd); a != kNone) {
    // The scores are the operand with the full shape that comes from a product; the mask is the other.
    ValueId x = a;
    StripScale(module, g, &x);
    const bool first = MatchProduct(g, x).has_value();
    scores = first ? a : b;
    mask = first ? b : a;
    if (const ValueId condition = MatchBoolMask(module, g, mask); condition != kNone) mask = condition;
  } else if (const Node* where = g.producer_if(scores, OpId::kWhere)) {
    // masked_fill: where(keep, scores, -inf), or where(hide, -inf, scores).
    const auto off = SplatValue(module, g, where->operands[2]), on = SplatValue(module, g, where->operands[1]);
    if (off && std::isinf(*off) && *off < 0) {
      mask = where->operands[0];
      scores = where->operands[1];
    } else if (on && std::isinf(*on) && *on < 0) {
      mask = MatchUnary(g, where->operands[0], OpId::kLogicalNot);
      if (mask == kNone) return Replacement();
      scores = where->operands[2];
    } else {
      return Replacement();
    }
  }
  // The mask must broadcast to the scores and not the other way round.
  if (g.type(scores) != g.type(softmax->operands[0])) return Replacement();
  double scale = StripScale(module, g, &scores);
  const auto product = MatchProduct(g, scores);
  if (!product) return Replacement();
  ValueId q = product->a, kt = product->b;
  scale *= StripScale(module, g, &q);
  scale *= StripScale(module, g, &kt);
  const Node* transpose = g.producer_if(kt, OpId::kPermute);
  if (!transpose || !SwapsLastTwo(*transpose)) return Replacement();
  ValueId k = transpose->operands[0];
  scale *= StripScale(module, g, &k);
  if (mask != kNone && g.type(mask).rank() > 4) return Replacement();
  const Shape out = g.type(result).shape;
  DT_ASSIGN_OR_RETURN(q, WithHeads(c.builder, q, out));
  DT_ASSIGN_OR_RETURN(k, WithHeads(c.builder, k, out));
  DT_ASSIGN_OR_RETURN(const ValueId value, WithHeads(c.builder, weighted->b, out));
  DT_ASSIGN_OR_RETURN(const ValueId v, c.builder.Emit(OpId::kAttention, {q, k, value, mask, kNone}, {{"scale", scale}}));
  return Replacement(std::vector<ValueId>{v});
}

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  const OpId op = c.graph.node(id).op;
  if (op == OpId::kMatmul || op == OpId::kView || op == OpId::kBmm) {
    const ValueId result = c.graph.node(id).results[0];
    return c.graph.type(result).rank() == 4 ? FuseSpelledOut(c, result) : Result<Replacement>(Replacement());
  }
  if (op != OpId::kAttention) return Replacement();
  std::vector<ValueId> operands = c.graph.node(id).operands;
  std::vector<Attr> attrs = c.graph.node(id).attrs;
  bool changed = false;
  const ValueId k = MatchRepeatedHeads(c.graph, operands[1]), v = MatchRepeatedHeads(c.graph, operands[2]);
  if (k != kNone && v != kNone && c.graph.type(k).shape[1] == c.graph.type(v).shape[1]) {
    operands[1] = k;
    operands[2] = v;
    changed = true;
  }
  if (operands[3] != kNone) {
    ValueId mask = operands[3];
    if (const ValueId condition = MatchBoolMask(c.module, c.graph, mask); condition != kNone) mask = condition;
    // Broadcasting makes an expand needless, and what lets everything through says nothing.
    if (const Node* e = c.graph.producer_if(mask, OpId::kExpand)) mask = e->operands[0];
    if (const auto [a, b] = MatchBinary(c.graph, mask, OpId::kLogicalAnd); a != kNone) {
      const ValueId other = SplatValue(c.module, c.graph, a) == 1.0 ? b : SplatValue(c.module, c.graph, b) == 1.0 ? a : kNone;
      if (other != kNone && c.graph.type(other).dtype == DType::kBool) mask = other;
    }
    if (mask != operands[3] && c.graph.type(mask).rank() <= 4) {
      operands[3] = mask;
      changed = true;
    }
  }
  if (!changed) return Replacement();
  DT_ASSIGN_OR_RETURN(std::vector<ValueId> results, c.builder.EmitWith(op, std::move(operands), std::move(attrs)));
  return Replacement(std::move(results));
}

}  // namespace

Status FuseAttention(Module& module) {
  for (auto& g : module.graphs) {
    bool changed = true;
    for (int round = 0; changed && round < 4; ++round) {
      DT_ASSIGN_OR_RETURN(changed, RewriteGraph(module, *g, Rule));
    }
  }
  return OkStatus();
}

}  // namespace dovetail
