// Plans and parameters of all graphs under a static scheme, chosen by trial where calibration alone does not tell.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "quant/static_params.h"

namespace dovetail {

// By graph of the module.
struct StaticChoice {
  std::vector<StaticPlan> plans;
  std::vector<StaticParams> params;
};

// How far ranges may clip what convolutions read and make depends on the model: an outlier that is clipped errs much, but finer steps err less everywhere
// else. So a few weights of the one against the other are tried: the first 16 calls run in float, with the values that will be integers rounded as they will
// be, and the weight whose outputs come closest to the float ones is taken. Modules without quantized convolutions need no trial.
Result<StaticChoice> ChooseStatic(const Module& module, std::span<const std::string> files, const std::vector<StaticPlan>& plans,
                                  const ObservedValues& observed, WeightQuantizer& weights, const ProgressFn& progress);

}  // namespace dovetail
