// From values of states to memory of states. See lower_states.cc.
#pragma once

#include "ir/builder.h"

namespace dovetail {

// Makes the module Form::kPlanned.
Status LowerStates(Module& module);

// Whether `v` is the memory of a state (a read, or an update of it in place).
bool IsStateMemory(const Graph& graph, ValueId v, uint32_t* state);

}  // namespace dovetail
