// Of nodes with the same operator, operands and attributes, keeps the first; constants count as the same when they hold the same. Structural
// nodes other than constants stay.
#include <map>
#include <tuple>

#include "ir/rewrite.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

constexpr size_t kMaxComparedBytes = 4096;  // larger constants are the same when they are the same view of the same bytes, or made by the same recipe

// A text that two constants share only if they hold the same.
std::string Contents(const Constant& c) {
  std::string key = c.type.ToString();
  if (!c.data_known) return StrCat(key, " external ", c.name);
  if (c.nbytes() <= kMaxComparedBytes) {
    std::string bytes(c.nbytes(), '\0');
    c.CopyTo(reinterpret_cast<std::byte*>(bytes.data()));
    return StrCat(key, " = ", bytes);
  }
  key += StrCat(" view of ", reinterpret_cast<uintptr_t>(c.identity()), " ", Name(c.stored));
  for (int64_t s : c.strides) key += StrCat(",", s);
  return key;
}

}  // namespace

Status RemoveCommonNodes(Module& module) {
  std::map<std::string, uint32_t> by_contents;
  std::vector<uint32_t> same;  // constant -> the first that holds the same
  for (uint32_t i = 0; i < module.constants.size(); ++i) same.push_back(by_contents.try_emplace(Contents(module.constants[i]), i).first->second);
  for (auto& g : module.graphs) {
    std::map<std::tuple<OpId, uint32_t, std::vector<ValueId>, std::string>, std::vector<ValueId>> seen;
    const RewriteRule rule = [&](RewriteContext& c, NodeId id) -> Result<Replacement> {
      Node& n = c.graph.node(id);
      if (n.op == OpId::kConst) n.ref = same[n.ref];
      if ((GetOp(n.op).traits & kStructural) && n.op != OpId::kConst) return Replacement();
      std::string attrs;
      for (const Attr& a : n.attrs) attrs += a.ToString() + ";";
      // The declared quantization of a result is a part of what the node computes.
      for (ValueId v : n.results)
        if (c.graph.type(v).per_tensor()) attrs += c.graph.type(v).ToString() + ";";
      auto [it, inserted] = seen.try_emplace({n.op, n.ref, n.operands, std::move(attrs)}, n.results);
      if (inserted) return Replacement();
      return Replacement(it->second);
    };
    DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteGraph(module, *g, rule));
  }
  return OkStatus();
}

}  // namespace dovetail
