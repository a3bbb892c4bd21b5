// What the report says of a fixed-point plan: what it computes otherwise than one may expect. Before graphs are rewritten.
#pragma once

#include "quant/fixed_params.h"

namespace dovetail {

void WarnOfStates(const Module& module, const FixedPlan& plan, QuantizeReport& report);
// Of results whose masked elements come back as the end of a range, and of nodes that compute with masked elements.
void WarnOfMasks(const Module& module, const FixedPlan& plan, const FixedObservation& observed, QuantizeReport& report);

}  // namespace dovetail
