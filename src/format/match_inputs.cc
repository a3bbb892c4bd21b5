#include "format/match_inputs.h"

#include <algorithm>
#include <cstring>

#include "core/tensor_type.h"

namespace dovetail {
namespace {

// NumPy has no bf16: such inputs come as f32.
void RoundToBFloat16(NamedArray& a) {
  const size_t n = a.data.size() / sizeof(float);
  for (size_t k = 0; k < n; ++k) {
    float value;
    std::memcpy(&value, a.data.data() + k * sizeof(float), sizeof(float));
    const uint16_t narrow = FloatToBFloat16(value);
    std::memcpy(a.data.data() + k * sizeof(narrow), &narrow, sizeof(narrow));
  }
  a.data.resize(n * sizeof(uint16_t));
  a.dtype = DType::kBF16;
}

}  // namespace

Result<std::vector<const NamedArray*>> MatchInputs(std::span<const ExpectedInput> inputs, std::vector<NamedArray>& arrays, const std::string& file) {
  std::vector<const NamedArray*> matched;
  std::string names;
  for (const NamedArray& a : arrays) names += StrCat(names.empty() ? "" : ", ", a.name);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype == DType::kNone) {
      matched.push_back(nullptr);
      continue;
    }
    NamedArray* found = nullptr;
    for (NamedArray& a : arrays)
      if (a.name == inputs[i].name || (!found && a.name == StrCat("input_", i))) found = &a;
    if (!found) return InvalidArgument("'", file, "' has no array '", inputs[i].name, "' (or 'input_", i, "'); it has: ", names);
    if (found->shape.size() > kMaxRank) return InvalidArgument("array '", found->name, "' of '", file, "' has rank ", found->shape.size());
    if (found->dtype == DType::kF32 && inputs[i].dtype == DType::kBF16) RoundToBFloat16(*found);
    matched.push_back(found);
  }
  for (const NamedArray& a : arrays)
    if (std::find(matched.begin(), matched.end(), &a) == matched.end()) {
      std::string wanted;
      for (const ExpectedInput& input : inputs)
        if (input.dtype != DType::kNone) wanted += StrCat(wanted.empty() ? "" : ", ", input.name);
      return InvalidArgument("'", file, "' has an array '", a.name, "', but there is no such input; ",
                             wanted.empty() ? "there are none" : "the inputs are: ", wanted);
    }
  return matched;
}

}  // namespace dovetail
