#include "quant/fixed_point.h"

#include <cmath>

#include "quant/calibration_warnings.h"
#include "quant/fixed_rewrite.h"
#include "quant/trial.h"

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

// How far u8 ranges clip what was seen: an index into kClippings, found by trying.
Result<size_t> BestClipping(const Module& module, const QuantizeOptions& options, const std::vector<std::string>& files, const FixedObservation& observed,
                            WeightQuantizer& weights, const FixedPlan& plan) {
  DT_ASSIGN_OR_RETURN(const Trial trial, Trial::Load(module, files, options.scheme->activation));
  size_t best = 0;
  double least = INFINITY;
  for (size_t i = 0; i < std::size(kClippings); ++i) {
    if (options.progress) options.progress("choosing ranges", i, std::size(kClippings));
    FixedPlan tried = plan;
    DT_ASSIGN_OR_RETURN(const FixedParams params, ChooseFixedParams(module, *options.scheme, observed, weights, kClippings[i], tried));
    const auto params_of = [&](size_t g, ValueId v) { return tried.integer(g, v) ? &params.groups.at(tried.group(g, v)) : nullptr; };
    DT_ASSIGN_OR_RETURN(const double error, trial.Error(params_of));
    if (error >= least) continue;
    least = error;
    best = i;
  }
  if (options.progress) options.progress("choosing ranges", std::size(kClippings), std::size(kClippings));
  return best;
}

}  // namespace

Status QuantizeFixed(Module& module, const QuantizeOptions& options, WeightQuantizer& weights, QuantizeReport& report) {
  if (options.calibration.empty())
    return InvalidArgument("--quantize ", options.scheme->name, " needs --calibrate with recorded calls: .npz or .safetensors files, or folders of them, "
                           "whose arrays have the names of the program's inputs (or input_0, input_1, ...). The scheme qnn-fp16 needs none");
  DT_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListCalls(options.calibration));
  FixedPlan plan(module, options);
  // Leaving something in float later adds no value.
  WatchedValues watched(module.graphs.size()), all(module.graphs.size());
  for (size_t g = 0; g < module.graphs.size(); ++g)
    for (ValueId v = 0; v < module.graphs[g]->num_values(); ++v)
      if (plan.integer(g, v)) {
        all[g].insert(v);
        if (!plan.scores(g, v)) watched[g].insert(v);
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
    if (!all[g].contains(v) || !plan.scores(g, v)) return;
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
  WarnOfBadValues(module, files, all, observed.values, report);
  size_t best = 0;
  if (options.scheme->activation == DType::kU8) {
    DT_ASSIGN_OR_RETURN(best, BestClipping(module, options, files, observed, weights, plan));
  }
  DT_ASSIGN_OR_RETURN(const FixedParams params, ChooseFixedParams(module, *options.scheme, observed, weights, kClippings[best], plan));
  return RewriteFixed(module, options, {plan, params, inputs}, weights, report);
}

}  // namespace dovetail
