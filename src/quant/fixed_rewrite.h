// Makes a fixed-point plan true.
#pragma once

#include <map>
#include <vector>

#include "quant/bias_correction.h"
#include "quant/fixed_params.h"

namespace dovetail {

struct FixedChoice {
  const FixedPlan& plan;
  const FixedParams& params;
  const std::vector<std::map<NodeId, InputMeans>>& inputs;  // of layers, by graph
};

// Rewrites all graphs and states; adds layers and warnings to the report.
Status RewriteFixed(Module& module, const QuantizeOptions& options, const FixedChoice& choice, WeightQuantizer& weights, QuantizeReport& report);

}  // namespace dovetail
