// Small modules quantized for fixed-point hardware, for tests.
#pragma once

#include <algorithm>

#include "quant/quantize.h"
#include "quant/static_samples.h"

namespace dovetail {

using namespace samples;

inline OwnedTensor Ints(std::vector<int64_t> values) {
  OwnedTensor t = OwnedTensor::Make(TensorType(DType::kI64, {Dim(static_cast<int64_t>(values.size()))}));
  std::copy(values.begin(), values.end(), t.view().as<int64_t>());
  return t;
}

using Fixed = QuantizedSample;

inline OwnedTensor Rows(unsigned seed, int64_t rows = 4, int64_t width = 32, float scale = 1) {
  return Floats({Dim(rows), Dim(width)}, Normal(static_cast<size_t>(rows * width), seed, scale));
}

// Attention with a mask of any kind: what it hides has no part in a range, and no weight.
inline std::string Masked(const std::string& mask) {
  return "module {\n" + ConstantLine("q.weight", "16,16", Normal(256, 1, 0.4f)) + ConstantLine("k.weight", "16,16", Normal(256, 2, 0.4f)) +
         R"(  graph @f(%x: f32[6,16], %m: f32[6,6], %b: bool[6,6]) {
    %wq = const @q.weight : f32[16,16]
    %wk = const @k.weight : f32[16,16]
    %q = linear %x, %wq, _ : f32[6,16]
    %k = linear %x, %wk, _ : f32[6,16]
    %q3 = view %q {size=[1,6,16]} : f32[1,6,16]
    %k3 = view %k {size=[1,6,16]} : f32[1,6,16]
    %a = attention %q3, %k3, %k3, )" + mask + R"( {is_causal=false} : f32[1,6,16]
    %y = view %a {size=[6,16]} : f32[6,16]
    return %y
  }
}
)";
}

}  // namespace dovetail
