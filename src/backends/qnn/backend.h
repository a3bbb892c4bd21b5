// The qnn backend: regions become context binaries for the tensor processor of one chip, which ExecuTorch's QnnBackend runs as well as our delegate.
//
// What the library itself says of an operator decides what goes into a region. The first regions of all methods become graphs of one context, and so do the
// second ones and so on, so that prefill and decode share weights. A graph has the name of its method. A state that a region updates is an operand and a
// result of it.
//
// The simulator in the x86-64 library cannot load contexts whose graphs share weights. `share_weights` false makes such that it can, in which each graph has
// its own.
#pragma once

#include "backends/backend.h"
#include "backends/qnn/api/library.h"

namespace dovetail {

Backend MakeQnnBackend(std::shared_ptr<qnn::Device> device, bool share_weights = true);
// How `check` begins what it says of nodes for which the library made no graph, though it had taken them.
inline constexpr std::string_view kNoQnnGraph = "QNN: the library cannot make a graph with it: ";
// Whether there is a lowering of the operator; what the library says of a node is another matter.
bool QnnLowers(OpId op);

}  // namespace dovetail
