// Constants and ranges beyond what 16 bits hold, in which the processor computes f32.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace dovetail::qnn {

// By node, whether it makes f32 of a constant beyond 65504 (a mask of -1e9, or -inf), or moves or adds what was made so, or turns integers whose range reaches
// beyond that from or to f32. Not where any very low number does as well, since it only hides elements: from a softmax, from a greatest element, or in integers
// whose range ends before 65504.
std::vector<bool> LargeNumbers(const Module& module, const Graph& graph);

}  // namespace dovetail::qnn
