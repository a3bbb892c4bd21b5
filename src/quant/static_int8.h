// The scheme with static activations: a float graph becomes one on i8, with per_tensor parameters from calibration.
//
// Quantized layers become quantized_linear and quantized_convolution on i8 with a per_tensor result; the other quantized operators keep their name and have
// per_tensor operands and results. quantize and dequantize stand where such values meet float operators, inputs, outputs and states. A layer's bias stays f32,
// in multiples of input scale x weight scale, so that it is the same as the integers that kernels add.
#pragma once

#include "quant/quantize.h"
#include "quant/weights.h"

namespace dovetail {

// Fails without calibration data, naming what takes it.
Status QuantizeStatic(Module& module, const QuantizeOptions& options, WeightQuantizer& weights, QuantizeReport& report);

}  // namespace dovetail
