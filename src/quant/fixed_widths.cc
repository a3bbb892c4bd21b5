#include "quant/fixed_widths.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace dovetail {
namespace {

struct Candidate {
  double sqnr;  // of the quieter calls or of most elements, in u8
  size_t graph;
  ValueId value;
};

std::vector<Candidate> Candidates(const FixedPlan& plan, const FixedParams& params, const FixedObservation& observed) {
  std::vector<Candidate> found;
  for (const auto& [name, group] : plan.groups()) {
    if (plan.dtype(name) != DType::kU8) continue;
    Observer merged;
    for (const auto& [g, v] : group.ranges)
      if (const auto it = observed.values[g].find(v); it != observed.values[g].end()) merged.Merge(it->second);
    if (merged.finite() == 0) continue;
    const double step = static_cast<double>(params.groups.at({name, DType::kU8}).scale);
    found.push_back({std::min(merged.QuietCalls(step), merged.MostElements(step)), group.ranges[0].first, group.ranges[0].second});
  }
  return found;
}

}  // namespace

Trial::ParamsFn IntegersOf(const Module& module, const FixedPlan& plan, const FixedParams& params) {
  std::vector<std::vector<bool>> narrow;  // values that a node of 8 bits reads or makes
  for (size_t g = 0; g < module.graphs.size(); ++g) {
    const Graph& graph = *module.graphs[g];
    narrow.emplace_back(graph.num_values(), false);
    for (NodeId id : graph.order) {
      const Node& n = graph.node(id);
      if (n.results.empty() || !plan.quantized(g, id) || plan.dtype(g, id) == DType::kU16) continue;
      narrow[g][n.results[0]] = true;
      for (size_t i : DataOperands(module, graph, n)) narrow[g][n.operands[i]] = true;
    }
  }
  return [&plan, &params, narrow](size_t g, ValueId v) -> Trial::Integers {
    if (!plan.integer(g, v)) return {};
    const DType dtype = narrow[g][v] ? plan.dtype(plan.group(g, v)) : DType::kU16;
    return {&params.groups.at({plan.group(g, v), dtype}), dtype};
  };
}

Result<Clipping> BestClipping(const Module& module, const Scheme& scheme, const FixedObservation& observed, WeightQuantizer& weights, const Trial& trial,
                              const FixedPlan& plan) {
  Clipping best{0, INFINITY};
  for (size_t i = 0; i < std::size(kClippings); ++i) {
    FixedPlan tried = plan;
    DT_ASSIGN_OR_RETURN(const FixedParams params, ChooseFixedParams(module, scheme, observed, weights, kClippings[i], tried));
    DT_ASSIGN_OR_RETURN(const double error, trial.Error(IntegersOf(module, tried, params)));
    if (error < best.error) best = {i, error};
  }
  return best;
}

Result<FixedPlan> WithWidths(const Module& module, const Scheme& scheme, const FixedObservation& observed, WeightQuantizer& weights, const Trial& trial,
                             Clipping clipping, const FixedPlan& plan) {
  std::optional<FixedPlan> best(plan);
  if (clipping.error <= kEnough) return *std::move(best);
  const double base = clipping.error;
  double least = base;
  FixedPlan solved = plan;
  DT_ASSIGN_OR_RETURN(const FixedParams first, ChooseFixedParams(module, scheme, observed, weights, kClippings[clipping.index], solved));
  const std::vector<Candidate> candidates = Candidates(solved, first, observed);
  for (double below = 18; below <= 32 && least > kEnough; below += 2) {
    FixedPlan tried = plan;
    size_t widened = 0;
    for (const Candidate& c : candidates)
      if (c.sqnr < below) {
        tried.Widen(c.graph, c.value);
        ++widened;
      }
    if (widened == 0) continue;
    tried.Solve();
    const FixedPlan wide = tried;
    DT_ASSIGN_OR_RETURN(const FixedParams params, ChooseFixedParams(module, scheme, observed, weights, kClippings[clipping.index], tried));
    DT_ASSIGN_OR_RETURN(const double error, trial.Error(IntegersOf(module, tried, params)));
    if (error >= least || error > base / 1.26) continue;
    least = error;
    best.emplace(wide);
  }
  return *std::move(best);
}

}  // namespace dovetail
