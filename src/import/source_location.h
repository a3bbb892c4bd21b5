// Where in the user's Python a node of an export comes from.
#pragma once

#include <string_view>

#include "ir/graph.h"

namespace dovetail::pt2 {

// `stack_trace` is a Python traceback; the innermost frame outside torch itself counts. `module_stack` lists modules from the outermost
// inward as "key,path,type;...": the last path counts.
Location ParseLocation(std::string_view stack_trace, std::string_view module_stack);

}  // namespace dovetail::pt2
