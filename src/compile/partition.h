// The one partitioner: gathers the nodes that a backend takes into regions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "ir/graph.h"

namespace dovetail {

// What became of one node, for `dovetail explain`.
struct Placement {
  std::string op, backend;       // backend "cpu" when no other took it
  std::string reason;            // why no earlier backend of the user's order took it; empty when the first did
  std::string source, module_path;
};

struct PartitionReport {
  std::vector<Placement> nodes;  // in execution order; constants and states left out
  size_t delegate_calls = 0;
};

// Replaces groups of nodes by `delegate` nodes. Nodes get a stage: the number of changes of engine on the longest path to them. All nodes
// of a backend in one stage become one region, which is convex since any path that leaves it raises the stage. `backends` is the user's
// order; what none takes stays for the cpu kernels. The module becomes Form::kPartitioned.
//
// With `trim`, what the cpu does with less work (Backend::cheaper_outside) leaves a region where it stands at the region's border: where the
// node on the cpu raises the stage of none of its users. All other nodes then keep their stages, so there are no more regions than before.
Result<PartitionReport> Partition(Module& module, std::span<const Backend* const> backends, bool trim = true);

}  // namespace dovetail
