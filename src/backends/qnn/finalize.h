// Making the library's graph of a region, and finding the node for which it cannot be made.
//
// The library's validation takes some operators that QnnGraph_finalize then refuses ("could not create op"), often for what stands beside them. Its message
// does not say which node it means.
#pragma once

#include <string>

#include "backends/qnn/lowering.h"

namespace dovetail::qnn {

// Whether any value is an f32 that the graph computes.
bool UsesFloats(const Graph& graph);

// A graph `name` of all nodes of `body`, which the library has not finalized yet. Errors name the node.
Result<abi::Handle> AddGraph(const Module& module, const Graph& body, const Context& context, const std::string& name);
Status Finalize(const Context& context, abi::Handle graph);

// The last node of the shortest beginning of `body` that cannot be finalized; kNone if the whole can now, or if the beginnings do not tell.
NodeId FindRefusedNode(const Module& module, const Graph& body, const std::shared_ptr<Device>& device);

// What nodes that the library cannot tell apart have in common: operator, types and sizes.
std::string SignatureOf(const Graph& graph, const Node& node);

}  // namespace dovetail::qnn
