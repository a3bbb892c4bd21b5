// Of nodes with the same operator, operands and attributes, keeps the first. Structural nodes other than constants stay.
#include <map>
#include <tuple>

#include "ir/rewrite.h"
#include "passes/passes.h"

namespace dovetail {

Status RemoveCommonNodes(Module& module) {
  for (auto& g : module.graphs) {
    std::map<std::tuple<OpId, uint32_t, std::vector<ValueId>, std::string>, std::vector<ValueId>> seen;
    const RewriteRule rule = [&](RewriteContext& c, NodeId id) -> Result<Replacement> {
      const Node& n = c.graph.node(id);
      if ((GetOp(n.op).traits & kStructural) && n.op != OpId::kConst) return Replacement();
      std::string attrs;
      for (const Attr& a : n.attrs) attrs += a.ToString() + ";";
      auto [it, inserted] = seen.try_emplace({n.op, n.ref, n.operands, std::move(attrs)}, n.results);
      if (inserted) return Replacement();
      return Replacement(it->second);
    };
    DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteGraph(module, *g, rule));
  }
  return OkStatus();
}

}  // namespace dovetail
