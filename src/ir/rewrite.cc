#include "ir/rewrite.h"

#include "base/check.h"

namespace dovetail {

Result<bool> RewriteGraph(Module& module, Graph& graph, const RewriteRule& rule) {
  const std::vector<NodeId> before = std::move(graph.order);
  graph.order.clear();
  // Uses are counted over the old order.
  graph.order = before;
  std::vector<uint32_t> uses = graph.CountUses();
  graph.order.clear();
  std::vector<ValueId> replaced;  // by value; kNone: itself
  auto resolve = [&](ValueId v) {
    while (v != kNone && v < replaced.size() && replaced[v] != kNone) v = replaced[v];
    return v;
  };
  Builder builder(module, graph, &graph.order);
  RewriteContext context{module, graph, builder, uses};
  bool changed = false;
  Status failure;
  for (NodeId id : before) {
    for (ValueId& v : graph.node(id).operands) v = resolve(v);
    if (failure.ok()) {
      builder.location = graph.node(id).location;
      const size_t first_new = graph.order.size();
      Result<Replacement> replacement = rule(context, id);
      if (!replacement.ok()) {
        failure = std::move(replacement).status();
        failure = std::move(failure).At(DescribeNode(graph, graph.node(id)), DescribeSource(module, graph.node(id)));
      } else if (*replacement) {
        const std::vector<ValueId>& results = graph.node(id).results;
        DT_CHECK((*replacement)->size() == results.size());
        for (size_t i = 0; i < results.size(); ++i) {
          const ValueId to = resolve((**replacement)[i]);
          if (replaced.size() <= results[i]) replaced.resize(results[i] + 1, kNone);
          replaced[results[i]] = to;
          if (graph.value(to).name.empty()) graph.value(to).name = graph.value(results[i]).name;
        }
        uses.resize(graph.num_values(), 0);
        for (size_t i = first_new; i < graph.order.size(); ++i)
          for (ValueId v : graph.node(graph.order[i]).operands)
            if (v != kNone) ++uses[v];
        for (ValueId v : graph.node(id).operands)
          if (v != kNone) --uses[v];
        for (ValueId v : results) uses[replaced[v]] += uses[v];
        changed = true;
        continue;
      }
    }
    graph.order.push_back(id);
  }
  for (ValueId& v : graph.outputs) v = resolve(v);
  if (!failure.ok()) return failure;
  graph.RemoveDeadNodes();
  return changed;
}

Result<bool> RewriteModule(Module& module, const RewriteRule& rule) {
  bool changed = false;
  for (auto& g : module.graphs) {
    DT_ASSIGN_OR_RETURN(const bool c, RewriteGraph(module, *g, rule));
    changed |= c;
  }
  return changed;
}

}  // namespace dovetail
