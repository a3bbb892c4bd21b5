// The schemes for fixed-point hardware: every f32 value between operators becomes u8 or u16 with parameters of its own from calibration.
//
// Layers become quantized_linear and quantized_convolution of a per_tensor operand and result; other operators keep their name and have per_tensor operands and
// results (ops/op_def.h says what that means). Graph inputs and outputs stay f32, between quantize and dequantize, and so does what the plan leaves in float
// (fixed_plan.h). States are stored as integers, their initial contents quantized with the parameters of what is written.
#pragma once

#include "quant/quantize.h"
#include "quant/weights.h"

namespace dovetail {

// Of a module whose fused operators are spelled out (passes/spell_out_fused.cc). Fails without calibration data, naming what takes it.
Status QuantizeFixed(Module& module, const QuantizeOptions& options, WeightQuantizer& weights, QuantizeReport& report);

}  // namespace dovetail
