// Whether the XNNPACK that is linked computes int8 convolutions as it should on this processor.
//
// With AMX, XNNPACK of 2024-11 takes the wrong input channels, from the 64th on, where the last tile of 16 results has one. tools/build_xnnpack.sh mends
// that; whoever brings an XNNPACK of his own learns of it here.
#pragma once

#include "base/status.h"

namespace dovetail {

// The convolution is run once, by the first call; later calls have that result. After InitializeXnnpack().
Status CheckConvolutions();

}  // namespace dovetail
