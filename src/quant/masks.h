// Masks: very low numbers in place of, or added to, what nobody is to take.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace dovetail {

// Elements below this are masked ones where a mask may be: no part of a range.
inline constexpr float kMaskedFrom = -5e3f;

// By value of a graph.
struct Masks {
  std::vector<bool> scores;  // what a softmax is taken of, and what that is moved, chosen or added from
  std::vector<bool> made;    // has masked elements: chosen or added from constants of very low numbers (and zeros), and what that is moved to
  std::vector<bool> hidden;  // of what was made so what leaves the graph or goes to a greatest of several, and what that is moved, chosen or added from
};
Masks FindMasks(const Module& module, const Graph& graph);

}  // namespace dovetail
