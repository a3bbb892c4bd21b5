// Spells out, outside regions, the operators that the stock ExecuTorch runtime does not have.
#include <cmath>
#include <limits>

#include "passes/match.h"
#include "passes/passes.h"
#include "passes/spelled.h"
#include "passes/stock_quantization.h"

namespace dovetail {
namespace {

using V = Result<ValueId>;

V RmsNorm(Builder& b, ValueId x, ValueId weight, double eps) {
  DT_ASSIGN_OR_RETURN(const ValueId squared, b.Emit(OpId::kMul, {x, x}));
  DT_ASSIGN_OR_RETURN(const ValueId mean, b.Emit(OpId::kMean, {squared}, {{"dim", Attr::Ints({-1})}, {"keepdim", true}}));
  DT_ASSIGN_OR_RETURN(const ValueId shifted, b.Emit(OpId::kAdd, {mean, b.Splat(eps, b.type(x).dtype)}));
  DT_ASSIGN_OR_RETURN(const ValueId scale, b.Emit(OpId::kRsqrt, {shifted}));
  DT_ASSIGN_OR_RETURN(const ValueId scaled, b.Emit(OpId::kMul, {x, scale}));
  return b.Emit(OpId::kMul, {scaled, weight});
}

V View(Builder& b, ValueId x, Shape shape) { return b.Emit(OpId::kView, {x}, {{"size", std::vector<Dim>(shape.begin(), shape.end())}}); }

// Broadcasts the batch dims and multiplies as one batch: all that bmm can do.
V Matmul(Builder& b, ValueId x, ValueId y) {
  const bool row = b.type(x).rank() == 1, column = b.type(y).rank() == 1;
  if (row || column) {  // a vector is a matrix of one row or one column
    if (row) {
      DT_ASSIGN_OR_RETURN(x, View(b, x, {1, b.type(x).shape[0]}));
    }
    if (column) {
      DT_ASSIGN_OR_RETURN(y, View(b, y, {b.type(y).shape[0], 1}));
    }
    DT_ASSIGN_OR_RETURN(const ValueId product, Matmul(b, x, y));
    Shape out = b.type(product).shape;
    if (row) out.erase(out.rank() - 2);
    if (column) out.erase(out.rank() - 1);
    return View(b, product, out);
  }
  const Shape xs = b.type(x).shape, ys = b.type(y).shape;
  DT_ASSIGN_OR_RETURN(Shape batch, Broadcast(Shape(xs.dims().first(xs.rank() - 2)), Shape(ys.dims().first(ys.rank() - 2))));
  const Dim n = batch.numel();
  auto flatten = [&](ValueId v) -> V {
    const Shape s = b.type(v).shape;
    Shape full = batch;
    full.push_back(s[s.rank() - 2]);
    full.push_back(s.back());
    if (full != s) {
      DT_ASSIGN_OR_RETURN(v, b.Emit(OpId::kExpand, {v}, {{"size", std::vector<Dim>(full.begin(), full.end())}}));
    }
    return View(b, v, {n, s[s.rank() - 2], s.back()});
  };
  DT_ASSIGN_OR_RETURN(const ValueId fx, flatten(x));
  DT_ASSIGN_OR_RETURN(const ValueId fy, flatten(y));
  DT_ASSIGN_OR_RETURN(const ValueId product, b.Emit(OpId::kBmm, {fx, fy}));
  Shape out = batch;
  out.push_back(xs[xs.rank() - 2]);
  out.push_back(ys.back());
  return View(b, product, out);
}

V Attention(Builder& b, const std::vector<ValueId>& operands, double scale) {
  ValueId q = operands[0], k = operands[1], v = operands[2];
  const Shape qs = b.type(q).shape, ks = b.type(k).shape;
  const auto heads = qs[1].constant(), kv_heads = ks[1].constant();
  if (!heads || !kv_heads) return Unsupported("attention with a dynamic number of heads");
  const int64_t group = *heads / *kv_heads;
  if (group != 1) {
    for (ValueId* x : {&k, &v}) {
      const Shape s = b.type(*x).shape;
      DT_ASSIGN_OR_RETURN(*x, View(b, *x, {s[0], s[1], 1, s[2], s[3]}));
      DT_ASSIGN_OR_RETURN(*x, b.Emit(OpId::kExpand, {*x}, {{"size", std::vector<Dim>{s[0], s[1], group, s[2], s[3]}}}));
      DT_ASSIGN_OR_RETURN(*x, View(b, *x, {s[0], s[1] * group, s[2], s[3]}));
    }
  }
  DT_ASSIGN_OR_RETURN(const ValueId kt, b.Emit(OpId::kPermute, {k}, {{"dims", Attr::Ints({0, 1, 3, 2})}}));
  DT_ASSIGN_OR_RETURN(const ValueId scaled, b.Emit(OpId::kMul, {q, b.Splat(scale, b.type(q).dtype)}));
  DT_ASSIGN_OR_RETURN(ValueId scores, Matmul(b, scaled, kt));
  if (operands[3] != kNone) {
    DT_ASSIGN_OR_RETURN(scores, b.Emit(OpId::kAdd, {scores, operands[3]}));
  }
  DT_ASSIGN_OR_RETURN(const ValueId weights, b.Emit(OpId::kSoftmax, {scores}, {{"dim", -1}}));
  return Matmul(b, weights, v);
}

// ExecuTorch's index_put_ along one dim takes values of exactly the shape that they replace, not ones that broadcast to it.
V IndexPut(Builder& b, std::vector<ValueId> operands, const std::vector<Attr>& attrs) {
  const ValueId values = operands.back();
  Shape full = b.type(operands[0]).shape;
  size_t indices = 0;
  for (size_t i = 1; i + 1 < operands.size(); ++i) {
    if (operands[i] == kNone) continue;
    const TensorType& index = b.type(operands[i]);
    if (index.rank() != 1 || index.dtype == DType::kBool) return kNone;
    full[i - 1] = index.shape[0];
    ++indices;
  }
  if (indices != 1 || b.type(values).shape == full) return kNone;
  if (b.type(values).shape.numel() == full.numel()) {
    DT_ASSIGN_OR_RETURN(operands.back(), View(b, values, full));
  } else {
    DT_ASSIGN_OR_RETURN(operands.back(), b.Emit(OpId::kExpand, {values}, {{"size", std::vector<Dim>(full.begin(), full.end())}}));
  }
  DT_ASSIGN_OR_RETURN(const std::vector<ValueId> results, b.EmitWith(OpId::kIndexPut, std::move(operands), attrs));
  return results[0];
}

// scale = max|x| / 127 in 16 significant bits (times 2^8 + 1 and back, after Veltkamp), q = x / scale rounded.
Result<std::vector<ValueId>> QuantizeRows(Builder& b, ValueId x) {
  const auto with = [&](OpId op, ValueId v, double scalar) { return b.Emit(op, {v, b.Splat(scalar, DType::kF32)}); };
  DT_ASSIGN_OR_RETURN(const ValueId magnitudes, b.Emit(OpId::kAbs, {x}));
  DT_ASSIGN_OR_RETURN(const ValueId most, b.Emit(OpId::kAmax, {magnitudes}, {{"dim", Attr::Ints({-1})}, {"keepdim", true}}));
  DT_ASSIGN_OR_RETURN(const ValueId exact, with(OpId::kDiv, most, 127));
  DT_ASSIGN_OR_RETURN(const ValueId large, with(OpId::kMul, exact, 257));
  DT_ASSIGN_OR_RETURN(const ValueId rest, b.Emit(OpId::kSub, {large, exact}));
  DT_ASSIGN_OR_RETURN(const ValueId scale, b.Emit(OpId::kSub, {large, rest}));
  // A row of zeros has the scale 0, by which nothing is divided.
  DT_ASSIGN_OR_RETURN(const ValueId divisor, with(OpId::kMaximum, scale, std::numeric_limits<float>::min()));
  DT_ASSIGN_OR_RETURN(const ValueId quotients, b.Emit(OpId::kDiv, {x, divisor}));
  DT_ASSIGN_OR_RETURN(const ValueId bounded, b.Emit(OpId::kClamp, {quotients}, {{"min", -127.0}, {"max", 127.0}}));
  // Adding 1.5 * 2^23 rounds to an integer, ties to even.
  DT_ASSIGN_OR_RETURN(const ValueId shifted, with(OpId::kAdd, bounded, 12582912));
  DT_ASSIGN_OR_RETURN(const ValueId rounded, with(OpId::kSub, shifted, 12582912));
  DT_ASSIGN_OR_RETURN(const ValueId rows, b.Emit(OpId::kToDtype, {rounded}, {{"out_dtype", DType::kI8}}));
  return std::vector<ValueId>{rows, scale};
}

V DequantizeRows(Builder& b, ValueId rows, ValueId scale) {
  DT_ASSIGN_OR_RETURN(const ValueId integers, b.Emit(OpId::kToDtype, {rows}, {{"out_dtype", DType::kF32}}));
  return b.Emit(OpId::kMul, {integers, scale});
}

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  const OpId op = c.graph.node(id).op;
  const std::vector<ValueId> o = c.graph.node(id).operands;
  Builder& b = c.builder;
  V v = kNone;
  switch (op) {
    case OpId::kRmsNorm: v = RmsNorm(b, o[0], o[1], GetAttr(c.graph.node(id), "eps").Number()); break;
    case OpId::kRope: v = SpellRope(b, o[0], o[1], o[2]); break;
    case OpId::kSilu: v = SpellSilu(b, o[0]); break;
    case OpId::kSiluMul: {
      DT_ASSIGN_OR_RETURN(const ValueId s, SpellSilu(b, o[0]));
      v = b.Emit(OpId::kMul, {s, o[1]});
      break;
    }
    case OpId::kIndexPut: {
      v = IndexPut(b, o, std::vector<Attr>(c.graph.node(id).attrs));
      if (v.ok() && *v == kNone) return Replacement();
      break;
    }
    case OpId::kQuantizeRows: {
      DT_ASSIGN_OR_RETURN(std::vector<ValueId> pair, QuantizeRows(b, o[0]));
      return Replacement(std::move(pair));
    }
    case OpId::kDequantizeRows: v = DequantizeRows(b, o[0], o[1]); break;
    case OpId::kMatmul: v = Matmul(b, o[0], o[1]); break;
    case OpId::kAttention: {
      const Attr scale = GetAttr(c.graph.node(id), "scale");
      const Shape q = b.type(o[0]).shape;
      if (q.rank() != 4 || o[4] != kNone || GetAttr(c.graph.node(id), "is_causal").Bool()) return Replacement();
      if (o[3] != kNone && b.type(o[3]).dtype == DType::kBool) return Replacement();
      v = Attention(b, o, scale.is_none() ? 1 / std::sqrt(static_cast<double>(q.back().value())) : scale.Number());
      break;
    }
    default: return DecomposeQuantized(c, id);
  }
  if (!v.ok()) return std::move(v).status();
  return Replacement(std::vector<ValueId>{*v});
}

}  // namespace

Status DecomposeForStock(Module& module) {
  // What quantization means is in nodes now, which become arithmetic on plain integers.
  for (auto& g : module.graphs)
    for (size_t v = 0; v < g->num_values(); ++v)
      if (TensorType& type = g->value(static_cast<ValueId>(v)).type; type.per_tensor() && !g->producer_if(static_cast<ValueId>(v), OpId::kConst)) type.quant = {};
  for (State& s : module.states)
    if (s.type.per_tensor()) s.type.quant = s.initial.type.quant = {};
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteModule(module, Rule));
  return OkStatus();
}

}  // namespace dovetail
