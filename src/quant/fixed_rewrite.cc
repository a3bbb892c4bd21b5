#include "quant/fixed_rewrite.h"

#include <algorithm>
#include <tuple>

#include "ir/rewrite.h"
#include "ops/quantization.h"
#include "quant/block_expansion.h"
#include "quant/layers.h"
#include "quant/static_params.h"

namespace dovetail {
namespace {

// The elements of a constant as integers, made when they are streamed out.
Constant Integers(const Module& module, const Constant& c, DType dtype, const QuantParams& q) {
  const auto recipe = [c, dtype, q](std::byte* to) {
    FloatRows rows(c);
    const IntegerRange range = RangeOf(dtype);
    const int64_t sizes[] = {rows.rows() * rows.width()};
    const TensorView out(dtype, sizes, to);
    int64_t i = 0;
    for (int64_t r = 0; r < rows.rows(); ++r)
      for (float v : rows.row(r)) StoreQuantized(out, i++, QuantizeElement(v, q.scale, q.zero_point, range));
  };
  return MakeRecipeConstant(UniqueConstantName(module, StrCat(c.name, ".", Name(dtype))), TensorType(dtype, c.type.shape, q), recipe);
}

// What all graphs share: a constant in the same parameters is stored once.
using Made = std::map<std::tuple<uint32_t, DType, float, int32_t>, uint32_t>;

class FixedRewriter {
 public:
  FixedRewriter(Module& module, size_t number, const QuantizeOptions& options, const FixedChoice& choice, WeightQuantizer& weights, Made& made,
                QuantizeReport& report)
      : module_(module), graph_(*module.graphs[number]), number_(number), options_(options), plan_(choice.plan),
        params_(choice.params), inputs_(choice.inputs[number]), weights_(weights), made_(made), report_(report) {}

  Status Run() {
    DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteGraph(module_, graph_, [&](RewriteContext& c, NodeId id) { return Rule(c, id); }));
    Builder builder(module_, graph_);
    for (ValueId& v : graph_.outputs) {
      DT_ASSIGN_OR_RETURN(v, Real(builder, v));
    }
    graph_.RemoveDeadNodes();
    return OkStatus();
  }

 private:
  Result<Replacement> Rule(RewriteContext& c, NodeId id) {
    const OpId op = graph_.node(id).op;
    if (op == OpId::kConst || op == OpId::kStateRead) return Replacement();
    if (op == OpId::kStateWrite) return WriteState(c, id);
    const bool quantized = !graph_.node(id).results.empty() && plan_.quantized(number_, id), layer = IsLayer(module_, graph_, graph_.node(id));
    if (layer || op == OpId::kEmbedding) Report(id, quantized);
    if (!quantized) return InFloat(c, id);
    const ValueId before = graph_.node(id).results[0];
    const uint32_t group = plan_.group(number_, before);
    const DType dtype = plan_.dtype(number_, id);
    const QuantParams params = params_.groups.at({group, dtype});
    std::vector<ValueId> results;
    if (layer) {
      DT_ASSIGN_OR_RETURN(results, Layer(c, id));
    } else {
      const StaticRole role = plan_.role(number_, id);
      const bool shared = role == StaticRole::kMove || role == StaticRole::kClamp;
      std::vector<ValueId> operands = graph_.node(id).operands;
      for (size_t i : DataOperands(module_, graph_, graph_.node(id))) {
        if (const uint32_t constant = ConstantOf(graph_, operands[i]); constant != kNone && !graph_.type(operands[i]).per_tensor())
          operands[i] = IntegerConstant(c.builder, constant, dtype, shared ? params : params_.constants.at({number_, id, i}));
        else {
          DT_ASSIGN_OR_RETURN(operands[i], IntegersOf(c.builder, operands[i], dtype));
        }
      }
      DT_ASSIGN_OR_RETURN(results, c.builder.EmitWith(op, std::move(operands), graph_.node(id).attrs, graph_.node(id).results.size()));
    }
    TensorType& type = graph_.value(results[0]).type;
    type = TensorType(dtype, type.shape, params);
    original_[results[0]] = before;
    if (const DType own = plan_.dtype(group); own != dtype) {
      DT_ASSIGN_OR_RETURN(const ValueId narrow, Requantize(c.builder, results[0], TensorType(own, type.shape, params_.groups.at({group, own}))));
      wide_[narrow] = results[0];
      original_[narrow] = before;
      results[0] = narrow;
    }
    return Replacement(std::move(results));
  }

  void Report(NodeId id, bool quantized) {
    const Node& n = graph_.node(id);
    LayerReport layer{LayerPath(module_, graph_, n), std::string(GetOp(n.op).name), {}, {}, {}};
    if (const Location* l = module_.location(n)) layer.source = l->source;
    if (!quantized) {
      layer.reason = plan_.reason(number_, id);
      const bool embedding = n.op == OpId::kEmbedding;
      if (layer.reason.empty()) layer.reason = embedding ? "nothing in fixed point reads its rows, or its table is not of f32" : "it does not compute on f32";
    } else {
      layer.became = StrCat(Name(plan_.dtype(number_, id)), " per_tensor");
      if (n.op == OpId::kEmbedding) layer.became += " table";
      else if (HasBlocks(module_, graph_, n, *options_.scheme)) layer.became += StrCat(" x i4 per_block size=", options_.scheme->block);
      else layer.became += StrCat(" x i", options_.scheme->weight_bits, " per_channel");
    }
    report_.layers.push_back(std::move(layer));
  }

  // A state in integers takes those of its value; one in float its real numbers.
  Result<Replacement> WriteState(RewriteContext& c, NodeId id) {
    const uint32_t state = graph_.node(id).ref;
    ValueId v = graph_.node(id).operands[0];
    if (graph_.type(v) == module_.states[state].type) return Replacement();
    if (!plan_.integer_state(state)) {
      DT_ASSIGN_OR_RETURN(v, Real(c.builder, v));
    } else if (const uint32_t constant = ConstantOf(graph_, v); constant != kNone) {
      v = IntegerConstant(c.builder, constant, module_.states[state].type.dtype, module_.states[state].type.quant);
    } else {
      DT_ASSIGN_OR_RETURN(v, IntegersOf(c.builder, v, module_.states[state].type.dtype));
    }
    c.builder.WriteState(state, v);
    return Replacement(std::vector<ValueId>());
  }

  // A node that stays float reads the real numbers of what has become integers.
  Result<Replacement> InFloat(RewriteContext& c, NodeId id) {
    std::vector<ValueId> operands = graph_.node(id).operands;
    bool changed = false;
    for (ValueId& v : operands) {
      if (v == kNone || !graph_.type(v).per_tensor()) continue;
      DT_ASSIGN_OR_RETURN(v, Real(c.builder, v));
      changed = true;
    }
    if (!changed) return Replacement();
    const std::vector<ValueId> before = graph_.node(id).results;
    DT_ASSIGN_OR_RETURN(std::vector<ValueId> results, c.builder.EmitWith(graph_.node(id).op, std::move(operands), graph_.node(id).attrs, before.size()));
    for (size_t i = 0; i < results.size(); ++i) original_[results[i]] = before[i];
    return Replacement(std::move(results));
  }

  Result<ValueId> Requantize(Builder& b, ValueId v, const TensorType& type) {
    DT_ASSIGN_OR_RETURN(const ValueId to, b.Emit(OpId::kRequantize, {v}));
    graph_.value(to).type = type;
    return to;
  }

  Result<ValueId> Real(Builder& b, ValueId v) {
    if (const auto wide = wide_.find(v); wide != wide_.end()) v = wide->second;
    if (!graph_.type(v).per_tensor()) return v;
    if (auto it = real_.find(v); it != real_.end()) return it->second;
    const QuantParams q = graph_.type(v).quant;
    DT_ASSIGN_OR_RETURN(const ValueId real, b.Emit(OpId::kDequantize, {v}, {{"scale", static_cast<double>(q.scale)}, {"zero_point", q.zero_point}}));
    return real_[v] = real;
  }

  // The integers of a value: itself, or one quantize or change of type for all its users.
  Result<ValueId> IntegersOf(Builder& b, ValueId v, DType dtype) {
    const bool integer = graph_.type(v).per_tensor();
    if (integer && graph_.type(v).dtype == dtype) return v;
    if (const auto wide = wide_.find(v); integer && wide != wide_.end()) return wide->second;
    if (auto it = integers_.find({v, dtype}); it != integers_.end()) return it->second;
    const auto original = original_.find(v);
    const QuantParams q = params_.groups.at({plan_.group(number_, original == original_.end() ? v : original->second), dtype});
    if (integer) {
      DT_ASSIGN_OR_RETURN(const ValueId to, Requantize(b, v, TensorType(dtype, graph_.type(v).shape, q)));
      return integers_[{v, dtype}] = to;
    }
    DT_ASSIGN_OR_RETURN(const ValueId to, b.Emit(OpId::kQuantize, {v}, {{"scale", static_cast<double>(q.scale)}, {"zero_point", q.zero_point}, {"out_dtype", dtype}}));
    return integers_[{v, dtype}] = to;
  }

  ValueId IntegerConstant(Builder& b, uint32_t constant, DType dtype, const QuantParams& q) {
    auto [it, inserted] = made_.try_emplace({constant, dtype, q.scale, q.zero_point}, static_cast<uint32_t>(module_.constants.size()));
    if (inserted) module_.constants.push_back(Integers(module_, Constant(module_.constants[constant]), dtype, q));
    return b.Const(it->second);
  }

  Result<std::vector<ValueId>> Layer(RewriteContext& c, NodeId id) {
    const Node& n = graph_.node(id);
    const OpId op = n.op;
    const uint32_t weight = WeightOf(graph_, n, weights_), own_bias = op == OpId::kMatmul ? kNone : ConstantOf(graph_, n.operands[2]);
    const ValueId bias_value = op == OpId::kMatmul ? kNone : n.operands[2];
    const int bits = options_.scheme->weight_bits, axis = ChannelAxis(n);
    const bool blocks = HasBlocks(module_, graph_, n, *options_.scheme);
    DT_ASSIGN_OR_RETURN(const ValueId x, IntegersOf(c.builder, n.operands[0], plan_.dtype(number_, id)));
    QuantizedWeight w;
    ValueId bias = bias_value;
    if (blocks) {
      const int block = options_.scheme->block;
      if (!weights_.HasPerBlock(weight, block)) {
        DT_ASSIGN_OR_RETURN(PackedBlocks packed, ExpandedBlocks(module_.constants[weight], block));
        weights_.SetPerBlock(weight, block, std::move(packed));
      }
      DT_ASSIGN_OR_RETURN(w, weights_.PerBlock(weight, block));
    } else {
      const std::vector<float>& scales = params_.weight_scales.at({number_, id});
      DT_ASSIGN_OR_RETURN(w, weights_.PerChannel(weight, axis, scales, bits));
      const auto met = inputs_.find(id);
      const std::vector<double> means = met == inputs_.end() ? std::vector<double>() : met->second.Means();
      bias = RoundedBias(c.builder, {weight, w.data, own_bias, scales, graph_.type(x).quant.scale}, means);
    }
    std::vector<ValueId> operands = {x, kNone, kNone, c.builder.Const(w.data), c.builder.Const(w.scale), bias};
    // Inference has no quantized type to give: the caller declares it.
    if (op == OpId::kConvolution) return c.builder.EmitWith(OpId::kQuantizedConvolution, std::move(operands), graph_.node(id).attrs);
    return c.builder.EmitAll(OpId::kQuantizedLinear, std::move(operands));
  }

  Module& module_;
  Graph& graph_;
  const size_t number_;
  const QuantizeOptions& options_;
  const FixedPlan& plan_;
  const FixedParams& params_;
  const std::map<NodeId, InputMeans>& inputs_;
  WeightQuantizer& weights_;
  Made& made_;
  QuantizeReport& report_;
  std::map<ValueId, ValueId> real_, wide_;  // wide_: of what a node of 16 bits made and was narrowed
  std::map<std::pair<ValueId, DType>, ValueId> integers_;
  std::map<ValueId, ValueId> original_;  // of a value that took another's place: the one that the plan knows
};

void QuantizeStates(Module& module, const FixedPlan& plan, const FixedParams& params) {
  for (uint32_t s = 0; s < module.states.size(); ++s) {
    if (!plan.integer_state(s)) continue;
    State& state = module.states[s];
    const DType dtype = plan.dtype(plan.group_of_state(s));
    const QuantParams q = params.groups.at({plan.group_of_state(s), dtype});
    Constant integers = Integers(module, state.initial, dtype, q);
    std::vector<std::byte> bytes(integers.nbytes());
    integers.CopyTo(bytes.data());
    state.type = integers.type;
    state.initial = MakeOwnedConstant(state.name, state.type, std::move(bytes));
  }
  for (auto& g : module.graphs)
    for (NodeId id : g->order)
      if (const Node& n = g->node(id); n.op == OpId::kStateRead) g->value(n.results[0]).type = module.states[n.ref].type;
}

}  // namespace

Status RewriteFixed(Module& module, const QuantizeOptions& options, const FixedChoice& choice, WeightQuantizer& weights, QuantizeReport& report) {
  QuantizeStates(module, choice.plan, choice.params);
  Made made;
  for (size_t g = 0; g < module.graphs.size(); ++g) DT_RETURN_IF_ERROR(FixedRewriter(module, g, options, choice, weights, made, report).Run());
  return OkStatus();
}

}  // namespace dovetail
