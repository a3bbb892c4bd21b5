// Fused operators written in plain ones, for the passes that take them apart.
#pragma once

#include "ir/rewrite.h"

namespace dovetail {

// x * cos + cat(-high, low) * sin, low and high the halves of the last dim.
Result<ValueId> SpellRope(Builder& b, ValueId x, ValueId cos, ValueId sin);
// x * sigmoid(x).
Result<ValueId> SpellSilu(Builder& b, ValueId x);

}  // namespace dovetail
