// Attention whose keys and values are rows of int8 dequantized for it (an int8 cache) takes them as they are: no float copy of the cache is made.
#include "ir/rewrite.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  const Node& n = c.graph.node(id);
  if (n.op != OpId::kAttention) return Replacement();
  const Node* key = c.graph.producer_if(n.operands[1], OpId::kDequantizeRows);
  const Node* value = c.graph.producer_if(n.operands[2], OpId::kDequantizeRows);
  if (!key || !value) return Replacement();
  const ValueId query = n.operands[0], mask = n.operands[3], positions = n.operands[4];
  std::vector<ValueId> operands = {query, key->operands[0], value->operands[0], key->operands[1], value->operands[1], mask, positions};
  DT_ASSIGN_OR_RETURN(std::vector<ValueId> results, c.builder.EmitWith(OpId::kQuantizedAttention, std::move(operands), n.attrs));
  return Replacement(std::move(results));
}

}  // namespace

Status FuseQuantizedAttention(Module& module) {
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteModule(module, Rule));
  return OkStatus();
}

}  // namespace dovetail
