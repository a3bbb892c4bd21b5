// What rounding weights does to the mean of a layer's results, and the bias that makes up for it.
//
// A weight's rounding error times the mean of what the weight meets is a shift of the result's mean (M. Nagel et al., "Data-Free Quantization Through Weight
// Equalization and Bias Correction", 2019; the means here are measured). It is the same in each call, so that it adds up from layer to layer where rounding
// noise does not, and costs nothing to remove.
#pragma once

#include <span>
#include <vector>

#include "ir/builder.h"

namespace dovetail {

// The mean, over all calls and all positions of the result, of what each weight of an output channel meets: the columns of a matrix, or the input channels
// and taps of a convolution; 0 outside the input.
class InputMeans {
 public:
  // `layer` is a linear, matmul or convolution of f32; `input` its first operand in some call. Values that are not finite count as 0.
  void Add(const Graph& graph, const Node& layer, const TensorView& input);
  // Empty where none was added, and for transposed convolutions.
  std::vector<double> Means() const;
  double positions() const { return positions_; }  // how many results' positions they are of

 private:
  std::vector<double> sums_;
  double positions_ = 0;
};

// By output channel, what is to be added to the bias of a layer whose `weight` (outputs along dim 0) has become `integers` (i8, of the same shape) times
// `scales`. Groups divide `means` among the output channels. All zero where `means` is empty.
std::vector<double> BiasCorrection(const Constant& weight, const Constant& integers, std::span<const float> scales, std::span<const double> means);

struct LayerWeight {
  uint32_t weight, integers, bias;  // constants; the bias may be kNone
  std::span<const float> scales;    // by output channel
  float input_scale;
};
// The bias in multiples of input scale x weight scale, less the shift that rounding the weight gives the result's mean: f32[outputs], or kNone where the layer
// has none and needs none. `means` as for BiasCorrection.
ValueId RoundedBias(Builder& b, const LayerWeight& layer, std::span<const double> means);

}  // namespace dovetail
