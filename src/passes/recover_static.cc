// Static quantization: values whose scale and zero point are constants of the whole tensor.
//
// An export spells a static layer as dequantize, operator in f32, quantize. Here quantize moves up to the operator and dequantize down to it, across
// what only moves elements, until the pair is gone and the operator's operands and results have per_tensor types (ir/interpreter.h says what that means).
// Where the operator needs its result in f32 too, or has an operand in f32, dequantize and quantize stay.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "ops/quantization.h"
#include "passes/match.h"
#include "passes/recover_quantized.h"
#include "passes/stored_weights.h"

namespace dovetail {
namespace {

// Operators that have kernels on integers with one scale and zero point for each operand and result, in one backend at least.
bool HasStaticForm(OpId op) {
  switch (op) {
    case OpId::kQuantizedLinear:
    case OpId::kQuantizedConvolution:
    case OpId::kAdd:
    case OpId::kSub:
    case OpId::kMul:
    case OpId::kMean:
    case OpId::kAvgPool2d:
    case OpId::kSigmoid:
    case OpId::kTanh: return true;
    default: return false;
  }
}

struct OneScale {
  float scale;
  int32_t zero_point;
  friend bool operator==(const OneScale&, const OneScale&) = default;
};

// Of quantize_affine and dequantize_affine: the constant scale and zero point of the whole tensor.
std::optional<OneScale> MatchOneScale(const Module& module, const Graph& g, const Node& n) {
  const std::vector<Dim>& block = GetAttr(n, "block_size").Dims();
  const Shape& shape = g.type(n.operands[0]).shape;
  if (!std::equal(block.begin(), block.end(), shape.begin(), shape.end())) return std::nullopt;
  const auto scale = NumberOf(module, g, n.operands[1]);
  const auto zero_point = n.operands[2] == kNone ? std::optional(0.0) : NumberOf(module, g, n.operands[2]);
  if (!scale || !zero_point || std::abs(*zero_point) > 65536) return std::nullopt;
  const float f = static_cast<float>(*scale);
  if (!(f > 0) || !std::isfinite(f)) return std::nullopt;
  return OneScale{f, static_cast<int32_t>(*zero_point)};
}

// Whether a value is read by dequantize_affine of these parameters only: then they may be a part of its type.
bool IsOnlyDequantized(const Module& module, const Graph& g, const std::vector<NodeId>& users, const OneScale& scale) {
  return std::all_of(users.begin(), users.end(),
                     [&](NodeId id) { return g.node(id).op == OpId::kDequantizeAffine && MatchOneScale(module, g, g.node(id)) == scale; });
}

class ParameterRecovery {
 public:
  ParameterRecovery(const Module& module, const Graph& g) : users_(g.Users()) {
    for (NodeId id : g.order) {
      const Node& n = g.node(id);
      if (n.op != OpId::kQuantizeAffine || std::find(g.outputs.begin(), g.outputs.end(), n.results[0]) != g.outputs.end()) continue;
      const auto scale = MatchOneScale(module, g, n);
      const IntegerRange range = RangeOf(g.type(n.results[0]).dtype);
      if (!scale || scale->zero_point < range.min || scale->zero_point > range.max) continue;
      if (IsOnlyDequantized(module, g, users_[n.results[0]], *scale)) scales_[id] = *scale;
    }
  }

  Result<Replacement> Rule(RewriteContext& c, NodeId id) {
    const Node& n = c.graph.node(id);
    if (n.op == OpId::kQuantizeAffine) {
      const auto it = scales_.find(id);
      return it == scales_.end() ? Replacement() : Quantize(c, id, it->second);
    }
    if (n.op != OpId::kDequantizeAffine) return Replacement();
    const auto scale = MatchOneScale(c.module, c.graph, n);
    if (!scale) return Replacement();
    const ValueId q = n.operands[0];
    if (auto it = real_.find({q, scale->scale, scale->zero_point}); it != real_.end()) return Replacement(std::vector<ValueId>{it->second});
    DT_ASSIGN_OR_RETURN(const ValueId x, c.builder.Emit(OpId::kDequantize, {q}, {{"scale", double{scale->scale}}, {"zero_point", scale->zero_point}}));
    real_[{q, scale->scale, scale->zero_point}] = x;
    return Replacement(std::vector<ValueId>{x});
  }

 private:
  Result<Replacement> Quantize(RewriteContext& c, NodeId id, const OneScale& scale) {
    const Node& n = c.graph.node(id);
    ValueId x = n.operands[0];
    const DType dtype = c.graph.type(n.results[0]).dtype;
    const int64_t min = GetAttr(n, "quant_min").Int(), max = GetAttr(n, "quant_max").Int();
    const auto key = std::tuple(x, scale.scale, scale.zero_point, min, max, dtype);
    if (auto it = quantized_.find(key); it != quantized_.end()) return Replacement(std::vector<ValueId>{it->second});
    // Bounds inside of the type's range are bounds of the real numbers.
    if (const IntegerRange range = RangeOf(dtype); min > range.min || max < range.max) {
      const auto bound = [&](int64_t q) { return static_cast<double>(q - scale.zero_point) * static_cast<double>(scale.scale); };
      DT_ASSIGN_OR_RETURN(x, c.builder.Emit(OpId::kClamp, {x}, {{"min", bound(min)}, {"max", bound(max)}}));
    }
    DT_ASSIGN_OR_RETURN(const ValueId q, c.builder.Emit(OpId::kQuantize, {x},
                                                     {{"scale", double{scale.scale}}, {"zero_point", scale.zero_point}, {"out_dtype", dtype}}));
    quantized_[key] = q;
    return Replacement(std::vector<ValueId>{q});
  }

  std::vector<std::vector<NodeId>> users_;
  std::map<NodeId, OneScale> scales_;
  std::map<std::tuple<ValueId, float, int32_t>, ValueId> real_;
  std::map<std::tuple<ValueId, float, int32_t, int64_t, int64_t, DType>, ValueId> quantized_;
};

// The per_tensor value that `v` dequantizes, or kNone.
ValueId IntegersOf(const Graph& g, ValueId v) {
  const ValueId q = v == kNone ? kNone : MatchUnary(g, v, OpId::kDequantize);
  return q != kNone && g.type(q).per_tensor() ? q : kNone;
}

// The bounds of a relu or clamp, infinite where there is none.
std::optional<std::pair<double, double>> MatchBounds(const Node& n) {
  switch (n.op) {
    case OpId::kRelu: return std::pair(0.0, INFINITY);
    case OpId::kHardtanh: return std::pair(GetAttr(n, "min_val").Number(), GetAttr(n, "max_val").Number());
    case OpId::kClamp: return std::pair(GetAttr(n, "min").Number(-INFINITY), GetAttr(n, "max").Number(INFINITY));
    default: return std::nullopt;
  }
}

// No number of the type is outside the bounds.
bool Saturates(const TensorType& t, const std::pair<double, double>& bounds) {
  const auto step = [&](double x) { return std::nearbyint(x / static_cast<double>(t.quant.scale)) + t.quant.zero_point; };
  const IntegerRange range = RangeOf(t.dtype);
  return step(bounds.first) <= range.min && step(bounds.second) >= range.max;
}

class ValueRecovery {
 public:
  explicit ValueRecovery(Module& module) : module_(module) {}

  Result<Replacement> Rule(RewriteContext& c, NodeId id) {
    if (c.graph.node(id).op == OpId::kQuantize) return Quantize(c, id);
    return SinkDequantize(c, id);
  }

 private:
  static Replacement With(ValueId v) { return Replacement(std::vector<ValueId>{v}); }

  static Result<ValueId> EmitQuantize(RewriteContext& c, ValueId x, const TensorType& to) {
    return c.builder.Emit(OpId::kQuantize, {x}, {{"scale", static_cast<double>(to.quant.scale)}, {"zero_point", to.quant.zero_point}, {"out_dtype", to.dtype}});
  }
  static Result<ValueId> EmitDequantize(RewriteContext& c, ValueId q) {
    const QuantParams p = c.graph.type(q).quant;
    return c.builder.Emit(OpId::kDequantize, {q}, {{"scale", static_cast<double>(p.scale)}, {"zero_point", p.zero_point}});
  }
  // The node again with other operands, its first result declared as quantized.
  static Result<ValueId> EmitStatic(RewriteContext& c, NodeId id, std::vector<ValueId> operands, const TensorType& to) {
    const OpId op = c.graph.node(id).op;
    const std::vector<Attr> attrs = c.graph.node(id).attrs;
    const ValueId old = c.graph.node(id).results[0];
    const uint32_t location = std::exchange(c.builder.location, c.graph.node(id).location);
    auto results = c.builder.EmitWith(op, std::move(operands), attrs, c.graph.node(id).results.size());
    c.builder.location = location;
    if (!results.ok()) return std::move(results).status();
    TensorType& type = c.graph.value((*results)[0]).type;
    type.dtype = to.dtype;
    type.quant = to.quant;
    c.graph.value((*results)[0]).name = c.graph.value(old).name;
    return (*results)[0];
  }

  // quantize(v): what makes v gives the integers itself, if quantize is its only user.
  Result<Replacement> Quantize(RewriteContext& c, NodeId id) {
    const ValueId v = c.graph.node(id).operands[0];
    const TensorType to = c.graph.type(c.graph.node(id).results[0]);
    if (const ValueId q = IntegersOf(c.graph, v); q != kNone && c.graph.type(q) == to) return With(q);
    const NodeId made_by = c.graph.value(v).producer;
    if (made_by == kNone || c.use_count(v) != 1 || c.graph.node(made_by).results[0] != v) return Replacement();
    const OpId op = c.graph.node(made_by).op;
    const std::vector<ValueId> operands = c.graph.node(made_by).operands;
    if (const auto bounds = MatchBounds(c.graph.node(made_by))) {
      if (c.graph.type(operands[0]).dtype != DType::kF32) return Replacement();  // integers already
      // Rounding keeps the order of numbers, so that bounds may come after it.
      DT_ASSIGN_OR_RETURN(ValueId q, EmitQuantize(c, operands[0], to));
      if (!Saturates(to, *bounds)) {
        DT_ASSIGN_OR_RETURN(q, EmitStatic(c, made_by, {q}, to));
      }
      return With(q);
    }
    if (op == OpId::kView || op == OpId::kPermute || op == OpId::kExpand || op == OpId::kCat) {
      std::vector<ValueId> integers;
      for (ValueId x : operands) {
        DT_ASSIGN_OR_RETURN(integers.emplace_back(), EmitQuantize(c, x, to));
      }
      DT_ASSIGN_OR_RETURN(const ValueId moved, EmitStatic(c, made_by, std::move(integers), to));
      return With(moved);
    }
    return HasStaticForm(op) && to.dtype == DType::kI8 ? Static(c, made_by, to) : Replacement();
  }

  Result<Replacement> Static(RewriteContext& c, NodeId made_by, const TensorType& to) {
    std::vector<ValueId> operands = c.graph.node(made_by).operands;
    const OpId op = c.graph.node(made_by).op;
    const bool layer = op == OpId::kQuantizedLinear || op == OpId::kQuantizedConvolution;
    if (!layer) {
      for (ValueId& v : operands) {
        DT_ASSIGN_OR_RETURN(v, Integers(c, v));
        if (v == kNone) return Replacement();
      }
    } else {
      const ValueId x = IntegersOf(c.graph, operands[0]);
      if (x == kNone || c.graph.type(x).dtype != DType::kI8) return Replacement();
      if (c.graph.type(operands[3]).dtype != DType::kI8) return Replacement();
      operands[0] = x;
      if (operands[5] != kNone) {
        const auto bias = Rounded(c, operands[5], operands[4], c.graph.type(x).quant.scale);
        if (!bias) return Replacement();
        operands[5] = *bias;
      }
    }
    DT_ASSIGN_OR_RETURN(const ValueId y, EmitStatic(c, made_by, std::move(operands), to));
    return With(y);
  }

  // The integers behind an operand, which may be a constant; kNone when it is real.
  Result<ValueId> Integers(RewriteContext& c, ValueId v) {
    if (const ValueId q = IntegersOf(c.graph, v); q != kNone) return c.graph.type(q).dtype == DType::kI8 ? q : kNone;
    const Node* real = c.graph.producer_if(v, OpId::kDequantize);
    const Node* stored = real ? c.graph.producer_if(real->operands[0], OpId::kConst) : nullptr;
    if (!stored || module_.constants[stored->ref].type.dtype != DType::kI8) return kNone;
    const float scale = static_cast<float>(GetAttr(*real, "scale").Number());
    const QuantParams quant = QuantParams::PerTensor(scale, static_cast<int32_t>(GetAttr(*real, "zero_point").Int()));
    if (!(quant.scale > 0) || !std::isfinite(quant.scale) || quant.zero_point < -128 || quant.zero_point > 127) return kNone;
    auto [it, added] = typed_.try_emplace({stored->ref, quant.scale, quant.zero_point}, static_cast<uint32_t>(module_.constants.size()));
    if (added) {
      Constant typed = module_.constants[stored->ref];
      typed.name = UniqueConstantName(module_, typed.name + ".int8");
      typed.type.quant = quant;
      module_.constants.push_back(std::move(typed));
    }
    return c.builder.Const(it->second);
  }

  // A constant bias on the grid of the layer's sums; nullopt when it is no constant.
  std::optional<ValueId> Rounded(RewriteContext& c, ValueId bias, ValueId weight_scale, float input_scale) {
    const auto numbers = NumbersOf(module_, c.graph, bias), scales = NumbersOf(module_, c.graph, weight_scale);
    if (!numbers || !scales || (scales->size() != 1 && scales->size() != numbers->size())) return std::nullopt;
    const std::vector<float> b(numbers->begin(), numbers->end()), s(scales->begin(), scales->end());
    const std::vector<float> rounded = BiasOnGrid(b, input_scale, s);
    std::vector<std::byte> bytes(rounded.size() * sizeof(float));
    if (!bytes.empty()) std::memcpy(bytes.data(), rounded.data(), bytes.size());
    return c.builder.AddConst(StrCat(ConstantBehind(module_, c.graph, bias)->name, ".on_grid"), c.graph.type(bias), std::move(bytes));
  }

  // What only moves elements of dequantized values moves their integers instead; so does the greatest of a window.
  Result<Replacement> SinkDequantize(RewriteContext& c, NodeId id) {
    const Node& n = c.graph.node(id);
    switch (n.op) {
      case OpId::kView:
      case OpId::kPermute:
      case OpId::kSlice:
      case OpId::kCat:
      case OpId::kIndexSelect:
      case OpId::kMaxPool2dWithIndices: break;
      case OpId::kConstantPadNd:
        if (!IsNumber(GetAttr(n, "value"), 0)) return Replacement();  // 0 is an integer of every type, the zero point
        break;
      default: return Replacement();
    }
    std::vector<ValueId> operands = n.operands;
    if (operands.empty()) return Replacement();
    const size_t moved = n.op == OpId::kCat ? operands.size() : 1;
    for (size_t i = 0; i < moved; ++i) {
      operands[i] = IntegersOf(c.graph, operands[i]);
      if (operands[i] == kNone) return Replacement();
      const TensorType &one = c.graph.type(operands[i]), &first = c.graph.type(operands[0]);
      if (one.quant != first.quant || one.dtype != first.dtype) return Replacement();
    }
    if (n.op == OpId::kMaxPool2dWithIndices && c.use_count(n.results[1]) != 0) return Replacement();
    std::vector<ValueId> results = n.results;
    const TensorType to = c.graph.type(operands[0]);
    DT_ASSIGN_OR_RETURN(const ValueId q, EmitStatic(c, id, std::move(operands), to));
    DT_ASSIGN_OR_RETURN(results[0], EmitDequantize(c, q));
    if (results.size() == 2) results[1] = c.graph.producer(q)->results[1];
    return Replacement(std::move(results));
  }

  Module& module_;
  std::map<std::tuple<uint32_t, float, int32_t>, uint32_t> typed_;  // constants given a per_tensor type
};

}  // namespace

Status RecoverStaticParameters(Module& module) {
  for (auto& g : module.graphs) {
    ParameterRecovery recovery(module, *g);
    DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteGraph(module, *g, [&](RewriteContext& c, NodeId id) { return recovery.Rule(c, id); }));
  }
  return OkStatus();
}

Status RecoverStaticValues(Module& module) {
  ValueRecovery recovery(module);
  for (auto& g : module.graphs) {
    bool changed = true;
    while (changed) {
      DT_ASSIGN_OR_RETURN(changed, RewriteGraph(module, *g, [&](RewriteContext& c, NodeId id) { return recovery.Rule(c, id); }));
    }
  }
  return OkStatus();
}

}  // namespace dovetail
