// Symbolic sizes become numbers: for hardware whose graphs have fixed shapes.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace dovetail {

// The sizes of one input in one method.
struct InputShape {
  std::string method, input;  // an empty method: the first one
  std::vector<int64_t> sizes;
};

// Fixes the symbols in the shapes of these inputs of the module's only graph, everywhere in it. kInvalidArgument on an input or rank that the graph has
// not, on a size outside the exported range, and on two sizes for one symbol.
Status FixShapes(Module& module, const std::vector<InputShape>& shapes);

}  // namespace dovetail
