#include "quant/quantize.h"

#include <algorithm>

#include "ir/verifier.h"
#include "passes/passes.h"
#include "quant/calibration.h"
#include "quant/compensate.h"
#include "quant/fixed_point.h"
#include "quant/layers.h"
#include "quant/state_storage.h"
#include "quant/static_int8.h"
#include "quant/weights.h"

namespace dovetail {
namespace {

bool IsStatic(const Module& module) {
  for (const auto& g : module.graphs)
    for (NodeId id : g->order)
      for (ValueId v : g->node(id).results)
        if (g->type(v).per_tensor()) return true;
  return false;
}

// Recurrent layers, which the static scheme does not look at.
void ReportRecurrent(const Module& module, QuantizeReport& report) {
  for (const auto& g : module.graphs)
    for (NodeId id : g->order) {
      const Node& n = g->node(id);
      if (n.op != OpId::kLstmScan && n.op != OpId::kGruScan) continue;
      const Location* l = module.location(n);
      report.layers.push_back({LayerPath(module, *g, n), std::string(GetOp(n.op).name), {}, kRecurrentReason, l ? l->source : std::string()});
    }
}

Status QuantizeAllLayers(Module& module, const QuantizeOptions& options, WeightQuantizer& weights, QuantizeReport& report) {
  return QuantizeLayers(module, options, weights, report);
}

bool FoldedIsMatched(const Location& l, const std::string& glob) {
  return std::any_of(l.folded.begin(), l.folded.end(), [&](const std::string& path) { return MatchesGlob(glob, path); });
}

// A layer is kept in float by the name of what was folded into it (its batch norm) too.
QuantizeOptions WithLayersOfFolded(const Module& module, const QuantizeOptions& options) {
  QuantizeOptions all = options;
  for (const auto& g : module.graphs)
    for (NodeId id : g->order) {
      const Location* l = module.location(g->node(id));
      if (l && std::any_of(options.keep_float.begin(), options.keep_float.end(), [&](const std::string& glob) { return FoldedIsMatched(*l, glob); }))
        all.keep_float.push_back(LayerPath(module, *g, g->node(id)));
    }
  return all;
}

void WarnOfUnusedGlobs(const Module& module, const QuantizeOptions& options, QuantizeReport& report) {
  for (const std::string& glob : options.keep_float) {
    const bool layer = std::any_of(report.layers.begin(), report.layers.end(), [&](const LayerReport& l) { return MatchesGlob(glob, l.path); });
    const bool state = std::any_of(module.states.begin(), module.states.end(), [&](const State& s) { return MatchesGlob(glob, s.name); });
    const bool folded = std::any_of(module.locations.begin(), module.locations.end(), [&](const Location& l) { return FoldedIsMatched(l, glob); });
    if (layer || state || folded) continue;
    report.warnings.push_back(StrCat("--keep-float '", glob, "' matches no layer and no state",
                                     report.layers.empty() ? std::string() : StrCat("; a layer's path looks like '", report.layers.front().path, "'")));
  }
}

}  // namespace

bool MatchesGlob(std::string_view glob, std::string_view path) {
  size_t star = std::string_view::npos, retry = 0, g = 0, p = 0;
  while (p < path.size()) {
    if (g < glob.size() && (glob[g] == path[p] || glob[g] == '?') && glob[g] != '*') {
      ++g;
      ++p;
    } else if (g < glob.size() && glob[g] == '*') {
      star = g++;
      retry = p;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      p = ++retry;
    } else {
      return false;
    }
  }
  while (g < glob.size() && glob[g] == '*') ++g;
  return g == glob.size();
}

bool KeptFloat(const QuantizeOptions& options, std::string_view path) {
  return std::any_of(options.keep_float.begin(), options.keep_float.end(), [&](const std::string& glob) { return MatchesGlob(glob, path); });
}

Status Quantize(Module& module, const QuantizeOptions& asked, QuantizeReport& report) {
  const QuantizeOptions options = WithLayersOfFolded(module, asked);
  StateSets before = CollectStates(module);
  if (options.scheme && IsForNpu(*options.scheme)) DT_RETURN_IF_ERROR(RunPass(*FindPass("spell_out_fused"), module));
  module.form = Form::kQuantized;
  if (options.scheme) {
    WeightQuantizer weights(module);
    if (options.scheme->embedding_bits > options.scheme->weight_bits) {
      for (const auto& g : module.graphs)
        for (NodeId id : g->order)
          if (const Node& n = g->node(id); n.op == OpId::kEmbedding && ConstantOf(*g, n.operands[0]) != kNone) weights.StayAt8Bits(ConstantOf(*g, n.operands[0]));
    }
    const Activations activations = options.scheme->activations;
    const bool is_static = IsCalibrated(*options.scheme);
    const bool came_static = is_static && IsStatic(module);
    if (came_static) report.warnings.push_back("the model came with static int8 layers: they stay as they are, and so does what its quantizer left in float");
    else if (is_static) ReportRecurrent(module, report);
    if (!options.calibration.empty() && !came_static) {
      if (options.scheme->weight_bits == 4) {
        DT_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListCalls(options.calibration));
        DT_RETURN_IF_ERROR(RoundWeightsOnCalls(module, options, files, weights, report));
      } else if (!is_static) {
        report.warnings.push_back(StrCat("--quantize ", options.scheme->name, " needs no calibration; the files of --calibrate were not read"));
      }
    }
    if (!came_static && activations != Activations::kHalf) {
      const auto quantize = activations == Activations::kFixed ? QuantizeFixed : activations == Activations::kStatic ? QuantizeStatic : QuantizeAllLayers;
      DT_RETURN_IF_ERROR(quantize(module, options, weights, report));
    }
  }
  WarnOfUnusedGlobs(module, asked, report);
  if (options.int8_states) DT_RETURN_IF_ERROR(StoreStatesAsInt8(module, options, report));
  DT_RETURN_IF_ERROR(Verify(module));
  // The scales of a state are read and written where it is, and nowhere else.
  for (const auto& g : module.graphs)
    for (const std::string& name : report.int8_states)
      for (std::set<std::string>* set : {&before.read, &before.written})
        if (const std::string state = StrCat(g->name, ".", name); set->contains(state)) set->insert(ScalesOf(state));
  return CheckStates(before, CollectStates(module));
}

}  // namespace dovetail
