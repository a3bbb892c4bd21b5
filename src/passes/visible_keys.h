// Which keys the rows of an attention may attend, as a value.
#pragma once

#include <vector>

#include "ir/builder.h"

namespace dovetail {

// Takes a mask of booleans, positions and is_causal off the operands and attributes of an attention: what they allow together, bool, broadcastable to
// [.., S, T]. kNone where it has none of them.
Result<ValueId> TakeVisibleKeys(Builder& b, std::vector<ValueId>& operands, std::vector<Attr>& attrs);

}  // namespace dovetail
