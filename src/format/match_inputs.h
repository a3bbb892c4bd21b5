// The arrays of a file as the inputs of one call.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "format/arrays.h"

namespace dovetail {

struct ExpectedInput {
  std::string name;
  DType dtype = DType::kNone;  // kNone: always None, takes no array
};

// The array of each input, by its name or as "input_0", "input_1", ...; null for those that are None. An array that is for no input is an
// error. An f32 array for a bf16 input is rounded in place. Shapes are not looked at, except that a tensor can have their rank. `file` is for messages.
Result<std::vector<const NamedArray*>> MatchInputs(std::span<const ExpectedInput> inputs, std::vector<NamedArray>& arrays, const std::string& file);

}  // namespace dovetail
