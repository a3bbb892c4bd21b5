// Where the taps of a convolution's weight meet its input, in two spatial dims: one dim is handled as two, the first of size 1.
#pragma once

#include <cstdint>

#include "ir/graph.h"
#include "ops/window.h"

namespace dovetail {

struct ConvolutionTaps {
  Window window;
  int64_t in_h, in_w, out_h, out_w;

  // `layer` is a convolution of a valid graph, not a transposed one; `input` its first operand, [batch, channels, (height,) width].
  static ConvolutionTaps Of(const Graph& graph, const Node& layer, const TensorView& input);
  int64_t count() const { return window[0].kernel * window[1].kernel; }
};

}  // namespace dovetail
