// The weights of a scheme, rounded with what calibration shows of their layers' inputs (gptq.h).
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

// A linear, matmul or convolution whose weight has one scale for each output channel, along dim 0.
struct ChannelLayer {
  size_t graph;
  NodeId node;
  uint32_t weight;             // constant, as WeightOf gives it
  std::vector<float>* scales;  // of the weight; those of 4-bit weights are chosen anew, each near its value
  std::vector<float> least;    // bounds of the scales from below
};
// Runs the calls in the same way and gives the weights to `weights` as integers of `bits` bits with these scales. The moments are those of inputs less their
// means: the bias makes up for what rounding does to the mean of a result (bias_correction.h). Layers that no call reached keep their scales.
Status RoundChannelsOnCalls(const Module& module, std::span<const ChannelLayer> layers, int bits, std::span<const std::string> files, const ProgressFn& progress,
                            WeightQuantizer& weights);

}  // namespace dovetail
