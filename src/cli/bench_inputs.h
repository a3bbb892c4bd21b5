// Inputs made up for `bench` from what a program says of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "dovetail/program.h"
#include "format/arrays.h"

namespace dovetail::cli {

// A symbol that is not given has its upper bound, but at most this where its range allows.
inline constexpr int64_t kDefaultSize = 128;

// The values of the symbols in the method's inputs: `given` (kInvalidArgument for a name that is none, kOutOfRange for a value outside its
// range), else the default.
Result<std::map<std::string, int64_t>> ChooseSizes(const Program& program, const MethodInfo& method,
                                                   const std::map<std::string, int64_t>& given);

// One call's arrays, named as the inputs; the same arguments give the same arrays. Floats are pseudo-random in [-1, 1). Integers: those of
// rank 0 and 1 count up from `position`; those that an embedding reads are pseudo-random rows of it; others are 1, as a mask or a kind of
// token may be. Bools are true.
Result<std::vector<NamedArray>> MakeInputs(const Program& program, const MethodInfo& method, const std::map<std::string, int64_t>& sizes,
                                           int64_t position);

}  // namespace dovetail::cli
