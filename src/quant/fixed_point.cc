#include "quant/fixed_point.h"

#include <algorithm>
#include <optional>

#include "quant/calibration_warnings.h"
#include "quant/compensate.h"
#include "quant/fixed_rewrite.h"
#include "quant/fixed_warnings.h"
#include "quant/fixed_widths.h"
#include "quant/static_params.h"

namespace dovetail {
namespace {

using Readers = std::vector<std::map<ValueId, std::vector<NodeId>>>;

// Of each graph, the layers that read a value.
Readers LayersOf(const Module& module, const FixedPlan& plan) {
  Readers readers(module.graphs.size());
  for (size_t g = 0; g < module.graphs.size(); ++g)
    for (NodeId id : module.graphs[g]->order)
      if (const Node& n = module.graphs[g]->node(id); !n.results.empty() && plan.quantized(g, id) && plan.role(g, id) == StaticRole::kLayer)
        readers[g][n.operands[0]].push_back(id);
  return readers;
}

// Of each value of `to`, the one in its place in `from`: both have the same operators in the same order, as exports of one model with other shapes have. Else
// by name. kNone where there is none.
std::vector<ValueId> Counterparts(const Graph& from, const Graph& to) {
  std::vector<ValueId> found(to.num_values(), kNone);
  const auto pair = [&](const std::vector<ValueId>& a, const std::vector<ValueId>& b) {
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) found[b[i]] = a[i];
  };
  const bool same = std::equal(from.order.begin(), from.order.end(), to.order.begin(), to.order.end(),
                               [&](NodeId a, NodeId b) { return from.node(a).op == to.node(b).op && from.node(a).results.size() == to.node(b).results.size(); });
  if (same) {
    pair(from.inputs, to.inputs);
    for (size_t i = 0; i < to.order.size(); ++i) pair(from.node(from.order[i]).results, to.node(to.order[i]).results);
    return found;
  }
  std::map<std::string, ValueId> by_name;
  for (ValueId v = 0; v < from.num_values(); ++v)
    if (!from.value(v).name.empty()) by_name[from.value(v).name] = v;
  for (ValueId v = 0; v < to.num_values(); ++v)
    if (const auto it = by_name.find(to.value(v).name); it != by_name.end()) found[v] = it->second;
  return found;
}

// A method that no call reached takes what was seen in the first that one did.
void LendRanges(const Module& module, const WatchedValues& all, FixedObservation& observed, std::vector<std::map<NodeId, InputMeans>>& inputs) {
  const auto seen = std::find_if(observed.values.begin(), observed.values.end(), [](const auto& values) { return !values.empty(); });
  if (seen == observed.values.end()) return;
  const size_t from = static_cast<size_t>(seen - observed.values.begin());
  const Graph& source = *module.graphs[from];
  for (size_t g = 0; g < module.graphs.size(); ++g) {
    if (!observed.values[g].empty()) continue;
    const std::vector<ValueId> counterparts = Counterparts(source, *module.graphs[g]);
    for (ValueId v : all[g]) {
      const ValueId other = counterparts[v];
      const auto it = other == kNone ? seen->end() : seen->find(other);
      if (it == seen->end()) continue;
      observed.values[g][v] = it->second;
      if (observed.masked[from].contains(other)) observed.masked[g].insert(v);
    }
    for (NodeId id : module.graphs[g]->order) {
      const Node& n = module.graphs[g]->node(id);
      const ValueId other = n.results.empty() ? kNone : counterparts[n.results[0]];
      if (other == kNone || source.value(other).producer == kNone) continue;
      if (const auto it = inputs[from].find(source.value(other).producer); it != inputs[from].end() && source.node(it->first).op == n.op) inputs[g][id] = it->second;
    }
  }
}

// Whether rounding that compensates is worth its time: beside activations of 8 bits the error of weights of 8 bits is small, and few rows show too little of
// their columns to lessen it.
bool Compensates(const Scheme& scheme, DType activation, int64_t columns, const InputMeans* met) {
  if (scheme.weight_bits == 4) return true;
  return activation == DType::kU16 && met && met->positions() * 4 >= static_cast<double>(columns);
}

Status RoundChannels(const Module& module, const Scheme& scheme, std::span<const std::string> files, const FixedChoice& choice, FixedParams& params,
                     WeightQuantizer& weights, const ProgressFn& progress) {
  std::vector<ChannelLayer> layers;
  for (auto& [layer, scales] : params.weight_scales) {
    const auto& [g, id] = layer;
    const Node& n = module.graphs[g]->node(id);
    if (ChannelAxis(n) != 0) continue;
    const uint32_t weight = WeightOf(*module.graphs[g], n, weights);
    const auto met = choice.inputs[g].find(id);
    if (Compensates(scheme, choice.plan.dtype(g, id), FloatRows(module.constants[weight]).width(), met == choice.inputs[g].end() ? nullptr : &met->second))
      layers.push_back({g, id, weight, &scales, params.least_scales.at(layer)});
  }
  return RoundChannelsOnCalls(module, layers, scheme.weight_bits, files, progress, weights);
}

}  // namespace

Status QuantizeFixed(Module& module, const QuantizeOptions& options, WeightQuantizer& weights, QuantizeReport& report) {
  if (options.calibration.empty())
    return WrongUsage("--quantize ", options.scheme->name, " needs --calibrate with recorded calls: .npz or .safetensors files, or folders of them, "
                           "whose arrays have the names of the program's inputs (or input_0, input_1, ...). The scheme qnn-fp16 needs none");
  DT_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListCalls(options.calibration));
  const Scheme& scheme = *options.scheme;
  FixedPlan plan(module, options);
  // Leaving something in float later adds no value.
  WatchedValues watched(module.graphs.size()), all(module.graphs.size());
  for (size_t g = 0; g < module.graphs.size(); ++g)
    for (ValueId v = 0; v < module.graphs[g]->num_values(); ++v)
      if (plan.integer(g, v)) {
        all[g].insert(v);
        if (!plan.masked(g, v)) watched[g].insert(v);
      }
  const Readers readers = LayersOf(module, plan);
  std::vector<std::map<NodeId, InputMeans>> inputs(module.graphs.size());
  FixedObservation observed;
  observed.values.resize(module.graphs.size());
  observed.masked.resize(module.graphs.size());
  size_t call = 0;
  std::vector<float> shown;
  const auto see = [&](size_t g, ValueId v, const OwnedTensor& t) {
    if (const auto it = readers[g].find(v); it != readers[g].end())
      for (NodeId id : it->second) inputs[g][id].Add(*module.graphs[g], module.graphs[g]->node(id), t.view());
    if (!all[g].contains(v) || !plan.masked(g, v)) return;
    shown.clear();
    const float* x = t.view().as<float>();
    const int64_t n = t.view().numel();
    for (int64_t i = 0; i < n; ++i)
      if (!(x[i] < kMaskedFrom)) shown.push_back(x[i]);
    if (static_cast<int64_t>(shown.size()) < n) observed.masked[g].insert(v);
    observed.values[g][v].Add(shown, call);
  };
  DT_ASSIGN_OR_RETURN(StateStore states, InitStates(module));
  for (; call < files.size(); ++call) {
    if (options.progress) options.progress("calibrating", call, files.size());
    DT_RETURN_IF_ERROR(ObserveCalls(module, std::span(files).subspan(call, 1), call, watched, states, observed.values, nullptr, see));
  }
  if (options.progress) options.progress("calibrating", files.size(), files.size());
  LendRanges(module, all, observed, inputs);
  WarnOfBadValues(module, files, all, observed.values, report);
  size_t clipping = 0;
  std::optional<FixedPlan> mixed;
  if (scheme.activation == DType::kU8) {
    if (options.progress) options.progress("choosing ranges", 0, 2);
    DT_ASSIGN_OR_RETURN(const Trial trial, Trial::Load(module, files));
    DT_ASSIGN_OR_RETURN(const Clipping best, BestClipping(module, scheme, observed, weights, trial, plan));
    clipping = best.index;
    if (options.progress) options.progress("choosing ranges", 1, 2);
    DT_ASSIGN_OR_RETURN(FixedPlan wider, WithWidths(module, scheme, observed, weights, trial, best, plan));
    mixed.emplace(std::move(wider));
    if (options.progress) options.progress("choosing ranges", 2, 2);
  }
  FixedPlan& chosen = mixed ? *mixed : plan;
  DT_ASSIGN_OR_RETURN(FixedParams params, ChooseFixedParams(module, scheme, observed, weights, kClippings[clipping], chosen));
  DT_RETURN_IF_ERROR(RoundChannels(module, scheme, files, {chosen, params, inputs}, params, weights, options.progress));
  WarnOfStates(module, chosen, report);
  WarnOfMasks(module, chosen, observed, report);
  return RewriteFixed(module, options, {chosen, params, inputs}, weights, report);
}

}  // namespace dovetail
