// The parts of the pass recover_quantized.
#pragma once

#include "ir/graph.h"

namespace dovetail {

// quantize_affine and dequantize_affine with one constant scale for the whole tensor become quantize and dequantize.
Status RecoverStaticParameters(Module& module);
// Layers with constant integer weights become quantized_ operators; with dynamically quantized inputs they share one quantize_dynamic per value.
Status RecoverLayers(Module& module);
// dequantize, operator, quantize becomes the operator with per_tensor operands and results.
Status RecoverStaticValues(Module& module);

}  // namespace dovetail
