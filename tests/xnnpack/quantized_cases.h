// Graphs of quantized operators in the text form, over odd shapes.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "xnnpack/harness.h"

namespace dovetail {

// With "{per_tensor scale=0.1 zero_point=3}" for each "Q(0.1,3)" after a shape.
std::string Expand(std::string_view text);

// A linear or convolution: shapes of weight and result, output channels, attributes.
struct Weighted {
  std::string op, weight, out;
  int64_t channels;
  std::string attrs;
  int axis = 0;
  bool bias = true;
};

// Weight @w, its scale @s and bias @b, and their values.
std::string Constants(const Weighted& c);
std::string Reads(const Weighted& c);
// The attributes of a convolution, transposed if it has an output padding.
std::string Conv(std::string_view stride, std::string_view padding, std::string_view dilation, int groups, std::string_view output_padding = "");
// Graphs of the one operator, of those types, and on rows: `in` and `rows` are shapes.
std::string Static(std::string_view in, const Weighted& c, std::string_view result);
std::string Dynamic(const std::string& in, const std::string& rows, const Weighted& c);

const std::vector<Case>& QuantizedCases();

}  // namespace dovetail
