#include "quant/static_int8.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "ir/rewrite.h"
#include "ops/quantization.h"
#include "quant/bias_correction.h"
#include "quant/calibration_warnings.h"
#include "quant/layers.h"
#include "quant/static_choice.h"

namespace dovetail {
namespace {

using LayerInputs = std::map<NodeId, InputMeans>;  // of a graph's layers

class StaticRewriter {
 public:
  StaticRewriter(Module& module, Graph& graph, const QuantizeOptions& options, const StaticPlan& plan, const StaticParams& params, const LayerInputs& inputs,
                 WeightQuantizer& weights, QuantizeReport& report)
      : module_(module), graph_(graph), options_(options), plan_(plan), params_(params), inputs_(inputs), weights_(weights), report_(report) {}

  Status Run() {
    DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteGraph(module_, graph_, [&](RewriteContext& c, NodeId id) { return Rule(c, id); }));
    Builder builder(module_, graph_);
    for (ValueId& v : graph_.outputs) {
      DT_ASSIGN_OR_RETURN(v, Real(builder, v));
    }
    return OkStatus();
  }

 private:
  Result<Replacement> Rule(RewriteContext& c, NodeId id) {
    const OpId op = graph_.node(id).op;
    if (op == OpId::kConst) return Replacement();
    if (op == OpId::kEmbedding) return Embedding(c, id);
    const bool layer = IsLayer(module_, graph_, graph_.node(id));
    if (layer) report_.layers.push_back(ReportOf(id, "i8 per_tensor x i8 per_channel", plan_.reason(id)));
    if (graph_.node(id).results.empty() || !plan_.quantized(id)) return InFloat(c, id);
    const QuantParams params = ParamsOfValue(graph_.node(id).results[0]);
    std::vector<ValueId> results;
    if (layer) {
      DT_ASSIGN_OR_RETURN(results, Layer(c, id));
    } else {
      std::vector<ValueId> operands = graph_.node(id).operands;
      const size_t data = plan_.data(graph_.node(id)).size();
      const bool own = plan_.rule(id).role == StaticRole::kOwn;
      for (size_t i = 0; i < data; ++i) {
        DT_ASSIGN_OR_RETURN(operands[i], Integers(c.builder, operands[i], own ? OwnParams(id, i) : std::optional(params)));
      }
      DT_ASSIGN_OR_RETURN(results, c.builder.EmitWith(op, std::move(operands), graph_.node(id).attrs, graph_.node(id).results.size()));
    }
    TensorType& type = graph_.value(results[0]).type;
    type = TensorType(DType::kI8, type.shape, params);
    return Replacement(std::move(results));
  }

  LayerReport ReportOf(NodeId id, std::string became, const std::string& reason) const {
    const Node& n = graph_.node(id);
    LayerReport layer{LayerPath(module_, graph_, n), std::string(GetOp(n.op).name), reason.empty() ? std::move(became) : "", reason, {}};
    if (const Location* l = module_.location(n)) layer.source = l->source;
    return layer;
  }

  // Of a value of the float graph that the plan has in integers.
  QuantParams ParamsOfValue(ValueId v) const { return params_.groups.at(plan_.group(v)); }

  // Of a constant operand, where it does not have its own ones.
  std::optional<QuantParams> OwnParams(NodeId id, size_t operand) const {
    const Node& n = graph_.node(id);
    const uint32_t constant = ConstantOf(graph_, n.operands[operand]);
    if (constant == kNone || n.op == OpId::kMul || !AllZeros(module_.constants[constant])) return std::nullopt;
    return QuantParams::PerTensor(ParamsOfValue(n.results[0]).scale, 0);
  }

  Result<Replacement> Embedding(RewriteContext& c, NodeId id) {
    LayerReport layer = ReportOf(id, "", "");
    if (KeptFloat(options_, layer.path)) layer.reason = "--keep-float asks for it";
    else if (graph_.type(graph_.node(id).results[0]).dtype != DType::kF32) layer.reason = "its table is not of f32";
    std::optional<ValueId> value;
    if (layer.reason.empty()) {
      DT_ASSIGN_OR_RETURN(LayerChange change, QuantizeEmbedding(c, id, *options_.scheme, weights_));
      value = change.value;
      layer.became = std::move(change.became);
      layer.reason = std::move(change.reason);
    }
    report_.layers.push_back(std::move(layer));
    if (!value) return Replacement();
    original_[*value] = graph_.node(id).results[0];
    return Replacement(std::vector<ValueId>{*value});
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
    if (graph_.node(id).op == OpId::kStateWrite) {
      c.builder.WriteState(graph_.node(id).ref, operands[0]);
      return Replacement(std::vector<ValueId>());
    }
    const std::vector<ValueId> before = graph_.node(id).results;
    DT_ASSIGN_OR_RETURN(std::vector<ValueId> results, c.builder.EmitWith(graph_.node(id).op, std::move(operands), graph_.node(id).attrs, before.size()));
    for (size_t i = 0; i < results.size(); ++i) original_[results[i]] = before[i];
    return Replacement(std::move(results));
  }

  Result<ValueId> Real(Builder& b, ValueId v) {
    if (!graph_.type(v).per_tensor()) return v;
    if (auto it = real_.find(v); it != real_.end()) return it->second;
    const QuantParams q = graph_.type(v).quant;
    DT_ASSIGN_OR_RETURN(const ValueId real, b.Emit(OpId::kDequantize, {v}, {{"scale", static_cast<double>(q.scale)}, {"zero_point", q.zero_point}}));
    return real_[v] = real;
  }

  // The integers of a value: itself, or one quantize for all its users. A constant has the parameters given, or its own.
  Result<ValueId> Integers(Builder& b, ValueId v, std::optional<QuantParams> constant_params = std::nullopt) {
    if (graph_.type(v).per_tensor()) return v;
    if (const uint32_t constant = ConstantOf(graph_, v); constant != kNone) return IntegerConstant(b, constant, constant_params);
    if (auto it = integers_.find(v); it != integers_.end()) return it->second;
    const auto original = original_.find(v);
    const QuantParams q = ParamsOfValue(original == original_.end() ? v : original->second);
    DT_ASSIGN_OR_RETURN(const ValueId integers,
                        b.Emit(OpId::kQuantize, {v}, {{"scale", static_cast<double>(q.scale)}, {"zero_point", q.zero_point}, {"out_dtype", DType::kI8}}));
    return integers_[v] = integers;
  }

  Result<ValueId> IntegerConstant(Builder& b, uint32_t constant, std::optional<QuantParams> params) {
    const Constant& c = module_.constants[constant];
    if (!c.data_known) return InvalidArgument("the data of constant '", c.name, "' are not in the file");
    const std::vector<float> values = FloatsOf(c);
    if (!params) params = ConstantParams(c);
    if (!params) return InvalidArgument("constant '", c.name, "' has a value that is not finite");
    std::vector<std::byte> bytes(values.size());
    for (size_t i = 0; i < values.size(); ++i)
      bytes[i] = static_cast<std::byte>(QuantizeElement(values[i], params->scale, params->zero_point, RangeOf(DType::kI8)));
    return b.AddConst(c.name + ".int8", TensorType(DType::kI8, c.type.shape, *params), std::move(bytes));
  }

  Result<std::vector<ValueId>> Layer(RewriteContext& c, NodeId id) {
    const uint32_t weight = WeightOf(graph_, graph_.node(id), weights_);
    const std::vector<float>& scales = params_.weight_scales.at(id);
    DT_ASSIGN_OR_RETURN(const QuantizedWeight w, weights_.PerChannel(weight, ChannelAxis(graph_.node(id)), scales));
    DT_ASSIGN_OR_RETURN(const ValueId x, Integers(c.builder, graph_.node(id).operands[0]));
    const OpId op = graph_.node(id).op;
    const uint32_t own_bias = op == OpId::kMatmul ? kNone : ConstantOf(graph_, graph_.node(id).operands[2]);
    const auto met = inputs_.find(id);
    const std::vector<double> means = met == inputs_.end() ? std::vector<double>() : met->second.Means();
    const ValueId bias = RoundedBias(c.builder, {weight, w.data, own_bias, scales, graph_.type(x).quant.scale}, means);
    std::vector<ValueId> operands = {x, kNone, kNone, c.builder.Const(w.data), c.builder.Const(w.scale), bias};
    // Inference has no quantized type to give: the caller declares it.
    if (op == OpId::kConvolution) return c.builder.EmitWith(OpId::kQuantizedConvolution, std::move(operands), graph_.node(id).attrs);
    return c.builder.EmitAll(OpId::kQuantizedLinear, std::move(operands));
  }

  Module& module_;
  Graph& graph_;
  const QuantizeOptions& options_;
  const StaticPlan& plan_;
  const StaticParams& params_;
  const LayerInputs& inputs_;
  WeightQuantizer& weights_;
  QuantizeReport& report_;
  std::map<ValueId, ValueId> real_, integers_;
  std::map<ValueId, ValueId> original_;  // of a float value that took another's place: the one that the plan knows
};

// Every value whose range may count. Leaving a node in float later adds none.
std::set<ValueId> ValuesToWatch(const Graph& graph, const StaticPlan& plan) {
  std::set<ValueId> watched;
  for (ValueId v = 0; v < graph.num_values(); ++v)
    if (plan.integer(v)) watched.insert(v);
  return watched;
}

// Of each graph, the layers that read a value. Leaving some in float later does no harm.
std::vector<std::map<ValueId, std::vector<NodeId>>> QuantizedLayers(const Module& module, const std::vector<StaticPlan>& plans) {
  std::vector<std::map<ValueId, std::vector<NodeId>>> readers(plans.size());
  for (size_t g = 0; g < plans.size(); ++g) {
    const Graph& graph = *module.graphs[g];
    for (NodeId id : graph.order)
      if (plans[g].quantized(id) && plans[g].rule(id).role == StaticRole::kLayer) readers[g][graph.node(id).operands[0]].push_back(id);
  }
  return readers;
}

// Layers without one range that does for all calls have their inputs quantized when the program runs.
Status QuantizeVarying(Module& module, const QuantizeOptions& options, WeightQuantizer& weights, QuantizeReport& report) {
  std::vector<LayerReport*> varying;
  std::set<std::string> paths;
  for (LayerReport& l : report.layers)
    if (l.reason == kVaries) {
      varying.push_back(&l);
      paths.insert(l.path);
    }
  if (paths.empty()) return OkStatus();
  QuantizeOptions dynamic = options;
  dynamic.scheme = FindScheme("int8-dynamic");
  QuantizeReport made;
  DT_RETURN_IF_ERROR(QuantizeLayers(module, dynamic, weights, made, &paths));
  for (const LayerReport& l : made.layers) {
    const auto it = std::find_if(varying.begin(), varying.end(), [&](const LayerReport* v) { return v->became.empty() && v->path == l.path && v->op == l.op; });
    if (it == varying.end()) continue;
    (*it)->became = l.became;
    (*it)->reason = l.became.empty() ? StrCat(kVaries, "; ", l.reason) : "";
  }
  return OkStatus();
}

}  // namespace

Status QuantizeStatic(Module& module, const QuantizeOptions& options, WeightQuantizer& weights, QuantizeReport& report) {
  if (options.calibration.empty())
    return WrongUsage("--quantize ", options.scheme->name, " needs --calibrate with recorded calls: .npz or .safetensors files, or folders of them, "
                           "whose arrays have the names of the program's inputs (or input_0, input_1, ...). The scheme int8-dynamic needs none");
  DT_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListCalls(options.calibration));
  std::vector<StaticPlan> plans;
  WatchedValues watched;
  for (const auto& g : module.graphs) {
    plans.emplace_back(module, *g, options);
    watched.push_back(ValuesToWatch(*g, plans.back()));
  }
  ObservedValues observed;
  DT_ASSIGN_OR_RETURN(StateStore states, InitStates(module));
  std::vector<LayerInputs> inputs(module.graphs.size());
  const std::vector<std::map<ValueId, std::vector<NodeId>>> readers = QuantizedLayers(module, plans);
  const auto see = [&](size_t g, ValueId v, const OwnedTensor& t) {
    const auto it = readers[g].find(v);
    if (it == readers[g].end()) return;
    for (NodeId id : it->second) inputs[g][id].Add(*module.graphs[g], module.graphs[g]->node(id), t.view());
  };
  DT_RETURN_IF_ERROR(ObserveCalls(module, files, 0, watched, states, observed, options.progress, see));
  WarnOfBadValues(module, files, watched, observed, report);
  DT_ASSIGN_OR_RETURN(const StaticChoice choice, ChooseStatic(module, files, plans, observed, weights, options.progress));
  for (size_t g = 0; g < module.graphs.size(); ++g) {
    Graph& graph = *module.graphs[g];
    DT_RETURN_IF_ERROR(StaticRewriter(module, graph, options, choice.plans[g], choice.params[g], inputs[g], weights, report).Run());
  }
  return QuantizeVarying(module, options, weights, report);
}

}  // namespace dovetail
