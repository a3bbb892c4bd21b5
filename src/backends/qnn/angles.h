// Rotary embeddings that a model computes from positions: position times frequency, and sine and cosine of that.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace dovetail::qnn {

// By node, whether it is on a way from integers to a sine or cosine of them. The processor computes f32 in 16 bits, whose steps between 256 and 512 are a
// quarter of a radian: there the result would mean nothing.
std::vector<bool> AnglesOfPositions(const Graph& graph);

}  // namespace dovetail::qnn
