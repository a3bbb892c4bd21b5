// From values of states to memory of states. See lower_states.cc.
#pragma once

#include "ir/builder.h"

namespace dovetail {

// Makes the module Form::kPlanned. With `stock_runtime`, updates that the stock ExecuTorch runtime's index_put_ refuses (more than one index, an index
// that is not a list, accumulate) are computed apart and copied.
Status LowerStates(Module& module, bool stock_runtime = false);

// Whether `v` is the memory of a state (a read, or an update of it in place).
bool IsStateMemory(const Graph& graph, ValueId v, uint32_t* state);

}  // namespace dovetail
