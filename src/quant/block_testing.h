// Of blocks of 4-bit weights, for tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

#include "ops/quantization.h"
#include "quant/block_expansion.h"

namespace dovetail::testing {

// Whether the scales of a row's blocks (bf16) are whole multiples, up to kMostMultiple, of one number.
inline bool AreMultiplesOfOne(std::span<const uint16_t> scales) {
  float most = 0;
  for (uint16_t s : scales) most = std::max(most, BFloat16ToFloat(s));
  for (int m = 1; m <= kMostMultiple; ++m)
    if (std::all_of(scales.begin(), scales.end(), [&](uint16_t s) {
          const float multiple = BFloat16ToFloat(s) / (most / static_cast<float>(m));
          return multiple == std::nearbyint(multiple) && multiple >= 1;
        }))
      return true;
  return false;
}

}  // namespace dovetail::testing
