// Layers that were quantized before this project saw them, or that it has quantized.
#pragma once

#include "quant/quantize.h"

namespace dovetail {

// One line for every quantized_ operator of every graph, in order of execution.
void ReportQuantizedLayers(const Module& module, QuantizeReport& report);

}  // namespace dovetail
