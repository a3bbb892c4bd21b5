// The compile half of a backend: its lowering, which is also its support check.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
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
  std::string payload_key = {};       // not empty: regions with this key have one payload, stored once
  std::vector<SharedData> shared = {};
  std::vector<std::pair<std::string, std::vector<std::byte>>> compile_specs = {};  // by key
};

// Functions that may hold what they work with: a vendor's library, say.
struct Backend {
  std::string_view name;  // in --backend: "xnnpack"
  // OK if the node can be part of a region of this backend; else the reason. `node` is in `graph`.
  std::function<Status(const Module& module, const Graph& graph, const Node& node)> check;
  // Whether a region of only these nodes is worth a delegate call (a lone view is not).
  std::function<bool(const Module& module, const Graph& graph, std::span<const NodeId> nodes)> worthwhile;
  // The payload of a region whose nodes were all taken by `check`. May rewrite the region's own body first.
  std::function<Result<LoweredRegion>(const Module& module, const Region& region)> lower;
  // Whether a region of this backend can update operand 0 of `update` (an index_put on a state that the result is written back to) in the
  // state's own memory: the region's result then aliases that operand, and `lower` sees it in Region::aliases. Null: never. A result that turns
  // out not to be what the state becomes loses its alias again.
  std::function<bool(const Module& module, const Graph& graph, const Node& update)> updates_in_place = nullptr;
  // Whether our runtime's kernel does the node with less work than this backend: at a region's border it stays outside. Null: none.
  std::function<bool(const Graph& graph, const Node& node)> cheaper_outside = nullptr;
  // Whether there is a lowering of the operator at all, for the table that `dovetail ops` prints.
  std::function<bool(OpId op)> lowers = nullptr;
  // Called once before `lower` is asked for the first region of a module, by backends that lower several regions together. Null: nothing to do.
  std::function<Status(const Module& module)> begin = nullptr;
  // Whether `begin` failed, since last asked, for nodes that `check` refuses from now on: what is partitioned anew goes without them. Null: never.
  std::function<bool()> refuses_more = nullptr;
  // Called before `check` is asked of a graph's nodes, by backends that look at them together. Null: nothing to do.
  std::function<void(const Module& module, const Graph& graph)> look = nullptr;
};

}  // namespace dovetail
