#include "quant/static_choice.h"

#include <algorithm>
#include <cmath>

#include "quant/trial.h"

namespace dovetail {
namespace {

Result<StaticChoice> ChooseWith(double clipping, const Module& module, const std::vector<StaticPlan>& plans, const ObservedValues& observed,
                                WeightQuantizer& weights) {
  StaticChoice choice{plans, {}};
  for (size_t g = 0; g < module.graphs.size(); ++g) {
    DT_ASSIGN_OR_RETURN(StaticParams params, ChooseParams(module, *module.graphs[g], observed[g], weights, choice.plans[g], clipping));
    choice.params.push_back(std::move(params));
  }
  return choice;
}

bool HasConvolution(const Module& module, const StaticChoice& choice) {
  for (size_t g = 0; g < module.graphs.size(); ++g)
    for (NodeId id : module.graphs[g]->order)
      if (module.graphs[g]->node(id).op == OpId::kConvolution && choice.plans[g].quantized(id)) return true;
  return false;
}

}  // namespace

Result<StaticChoice> ChooseStatic(const Module& module, std::span<const std::string> files, const std::vector<StaticPlan>& plans,
                                  const ObservedValues& observed, WeightQuantizer& weights, const ProgressFn& progress) {
  DT_ASSIGN_OR_RETURN(StaticChoice best, ChooseWith(kClippings[0], module, plans, observed, weights));
  if (!HasConvolution(module, best)) return best;
  DT_ASSIGN_OR_RETURN(const Trial trial, Trial::Load(module, files));
  double least = INFINITY;
  for (size_t i = 0; i < std::size(kClippings); ++i) {
    if (progress) progress("choosing ranges", i, std::size(kClippings));
    DT_ASSIGN_OR_RETURN(StaticChoice choice, ChooseWith(kClippings[i], module, plans, observed, weights));
    DT_ASSIGN_OR_RETURN(const double error, trial.Error([&](size_t g, ValueId v) {
      return choice.plans[g].integer(v) ? Trial::Integers{&choice.params[g].groups.at(choice.plans[g].group(v))} : Trial::Integers();
    }));
    if (error >= least) continue;
    least = error;
    best.plans.clear();
    best.params = std::move(choice.params);
    for (const StaticPlan& plan : choice.plans) best.plans.push_back(plan);
  }
  if (progress) progress("choosing ranges", std::size(kClippings), std::size(kClippings));
  return best;
}

}  // namespace dovetail
