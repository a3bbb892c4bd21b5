// The weights inside a compiled program, by type: of kernels and of XNNPACK delegates, each stored tensor once.
#pragma once

#include <map>
#include <string>

#include "format/pte_reader.h"

namespace dovetail::cli {

struct WeightTotal {
  size_t count = 0;
  uint64_t bytes = 0;
};
// By dtype: "f32", or XNNPACK's name where it packs ("qcint8").
std::map<std::string, WeightTotal> WeightsOf(const PteView& program);

}  // namespace dovetail::cli
