// What a report says of values that calibration could not measure.
#pragma once

#include <string>
#include <vector>

#include "quant/quantize.h"

namespace dovetail {

// "%y of linear (layers.0.q_proj, model.py:12)"
std::string DescribeValue(const Module& module, const Graph& graph, ValueId v);

// Inputs, else inputs of layers, that were zero in all calls; of the `watched` values, those that were not finite in some call, and those that no call gave a finite value.
void WarnOfBadValues(const Module& module, const std::vector<std::string>& files, const WatchedValues& watched, const ObservedValues& observed,
                     QuantizeReport& report);

}  // namespace dovetail
