// The 4-bit weights of a scheme, rounded with what calibration shows of their layers' inputs (gptq.h).
#pragma once

#include <span>
#include <string>

#include "quant/quantize.h"
#include "quant/weights.h"

namespace dovetail {

// Runs the calls in `files` and rounds every weight that QuantizeLayers or QuantizeFixed will want in blocks of `options.scheme`. The moments of inputs are
// gathered for as many layers at a time as fit into 128 MB, with a run of all calls for each. Weights whose layers no call reached are left to round to
// nearest, with a warning.
Status RoundWeightsOnCalls(Module& module, const QuantizeOptions& options, std::span<const std::string> files, WeightQuantizer& weights, QuantizeReport& report);

}  // namespace dovetail
