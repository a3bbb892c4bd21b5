// The compile half of a backend: its lowering, which is also its support check.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace dovetail {

// A weight that the payload refers to by key, stored once in the program however many delegates use it.
struct SharedData {
  std::string key;
  const Constant* constant = nullptr;  // streamed with CopyTo, unless `bytes` is set
  std::vector<std::byte> bytes;
};

struct LoweredRegion {
  std::string delegate_id;            // "XnnpackBackend"
  std::vector<std::byte> payload;     // without shared data
  std::vector<SharedData> shared;
};

struct Backend {
  std::string_view name;  // in --backend: "xnnpack"
  // OK if the node can be part of a region of this backend; else the reason. `node` is in `graph`.
  Status (*check)(const Module& module, const Graph& graph, const Node& node);
  // Whether a region of only these nodes is worth a delegate call (a lone view is not).
  bool (*worthwhile)(const Module& module, const Graph& graph, std::span<const NodeId> nodes);
  // The payload of a region whose nodes were all taken by `check`. May rewrite the region's own body first.
  Result<LoweredRegion> (*lower)(const Module& module, const Region& region);
  // Whether a region of this backend can update operand 0 of `update` (an index_put on a state that the result is written back to) in the
  // state's own memory: the region's result then aliases that operand, and `lower` sees it in Region::aliases. Null: never. A result that turns
  // out not to be what the state becomes loses its alias again.
  bool (*updates_in_place)(const Module& module, const Graph& graph, const Node& update) = nullptr;
  // Whether our runtime's kernel does the node with less work than this backend: at a region's border it stays outside. Null: none.
  bool (*cheaper_outside)(const Graph& graph, const Node& node) = nullptr;
  // Whether there is a lowering of the operator at all, for the table that `dovetail ops` prints.
  bool (*lowers)(OpId op) = nullptr;
};

}  // namespace dovetail
