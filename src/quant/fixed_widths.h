// Which values of a scheme of 8 bits need 16.
#pragma once

#include "quant/fixed_params.h"
#include "quant/trial.h"

namespace dovetail {

// The integers that a value is read as: of a group of 8 bits between nodes of 16 bits alone, those of 16. The plan and the parameters outlive it.
Trial::ParamsFn IntegersOf(const Module& module, const FixedPlan& plan, const FixedParams& params);

// How far u8 ranges clip what was seen, an index into kClippings found by trying, and the noise by signal of the outputs that it leaves.
struct Clipping {
  size_t index = 0;
  double error = 0;
};
Result<Clipping> BestClipping(const Module& module, const Scheme& scheme, const FixedObservation& observed, WeightQuantizer& weights, const Trial& trial,
                              const FixedPlan& plan);

// Where the trial's noise is not `kEnough` below the signal, the groups whose rounding noise is nearest to them get 16 bits: those below 18 dB, and so on by
// 2 dB until it is enough. Gives the plan that comes closest; `plan` itself where none is 1 dB better.
inline constexpr double kEnough = 0.007;
Result<FixedPlan> WithWidths(const Module& module, const Scheme& scheme, const FixedObservation& observed, WeightQuantizer& weights, const Trial& trial,
                             Clipping clipping, const FixedPlan& plan);

}  // namespace dovetail
