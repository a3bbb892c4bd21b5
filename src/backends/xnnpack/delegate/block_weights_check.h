// Whether the XNNPACK that is linked multiplies by blocks of 4-bit weights as it should on this processor.
//
// XNNPACK of 2024-11 takes, on AVX512-VNNI processors with GFNI other than Zen 4, a kernel that gives wrong results. tools/build_xnnpack.sh leaves that
// kernel out; whoever brings an XNNPACK of his own learns of it here rather than from his model's answers.
#pragma once

#include "base/status.h"

namespace dovetail {

// The linear is run once, by the first call; later calls have that result. After InitializeXnnpack().
Status CheckBlockWeights();

}  // namespace dovetail
