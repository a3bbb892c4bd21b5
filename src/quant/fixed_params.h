// The numbers of a fixed-point plan: parameters of each group of values, scales of each layer's weight.
#pragma once

#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "quant/fixed_plan.h"
#include "quant/weights.h"

namespace dovetail {

// What calibration saw, by graph: without what is masked.
struct FixedObservation {
  ObservedValues values;
  std::vector<std::set<ValueId>> masked;  // values with masked elements
};

struct FixedParams {
  std::map<std::pair<uint32_t, DType>, QuantParams> groups;                     // by the plan's name of the group, and the type of the integers
  std::map<std::pair<size_t, NodeId>, std::vector<float>> weight_scales;        // of layers with one scale per channel; by graph and node
  std::map<std::pair<size_t, NodeId>, std::vector<float>> least_scales;         // of the same: bounds from below
  std::map<std::tuple<size_t, NodeId, size_t>, QuantParams> constants;          // operands that are constants of their own
};

// Whether the scheme has this layer's weight in 4 bits in blocks, and not one scale per channel.
bool HasBlocks(const Module& module, const Graph& graph, const Node& layer, const Scheme& scheme);

// Groups that have a value that no call reached are left in float: `plan` is solved again. A group of 8 bits has parameters for both types. u8 ranges are those of the least error, where that of clipping
// counts `clipping` times; u16 ones reach a quarter beyond what was seen. What is masked saturates at the lowest integer,
// which lies so far below all scores seen that exp() of the difference is no part of a sum. Fails on weights that are not finite.
Result<FixedParams> ChooseFixedParams(const Module& module, const Scheme& scheme, const FixedObservation& observed, WeightQuantizer& weights, double clipping,
                                      FixedPlan& plan);

}  // namespace dovetail
