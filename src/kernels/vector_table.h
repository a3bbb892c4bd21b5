// The table of one instruction set: what a file vector_NAME.cc defines once it has its vectors V.
#pragma once

#include "kernels/attention_lanes.h"
#include "kernels/rows_lanes.h"

namespace dovetail::lanes {

template <class V>
constexpr VectorKernels Table(const char* name) {
  return {
      .name = name,
      .attend = Attend<V, float>,
      .attend_int8 = Attend<V, int8_t>,
      .length_above_none = LengthAboveNone<V>,
      .add_scaled = AddScaled<V>,
      .scale_finite = ScaleFinite<V>,
      .quantize_row = QuantizeRow<V>,
      .dequantize_row = DequantizeRow<V>,
      .rms_norm_row = RmsNormRow<V>,
      .layer_norm_row = LayerNormRow<V>,
      .softmax_row = SoftmaxRow<V>,
      .rotate = Rotate<V>,
      .silu_mul = SiluMul<V>,
  };
}

}  // namespace dovetail::lanes
