// The rewriting driver: walks a graph in order and lets a rule replace nodes by others.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ir/builder.h"

namespace dovetail {

// What a rule sees of the node under its hands. Operands are already those after earlier replacements. New nodes made by
// `builder` stand right before the node.
struct RewriteContext {
  Module& module;
  Graph& graph;
  Builder& builder;
  // Of values, after the replacements so far. A node that lost its last user counts until the walk ends.
  const std::vector<uint32_t>& uses;

  uint32_t use_count(ValueId v) const { return v < uses.size() ? uses[v] : 0; }
};
// nullopt keeps the node; otherwise one value per result takes its place.
using Replacement = std::optional<std::vector<ValueId>>;
using RewriteRule = std::function<Result<Replacement>(RewriteContext&, NodeId)>;

// Applies `rule` to every node of `graph` once, in order, then drops dead nodes. Replaced values keep their names. Returns whether
// anything was replaced. Nodes nested in regions are not visited.
Result<bool> RewriteGraph(Module& module, Graph& graph, const RewriteRule& rule);
// The same for every graph of the module.
Result<bool> RewriteModule(Module& module, const RewriteRule& rule);

}  // namespace dovetail
