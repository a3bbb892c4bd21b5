// Spells out, outside regions, the operators with per_tensor quantized operands or results: dequantize, the operator in f32, quantize. What takes
// integers as they are (moves of elements, quantize itself) keeps them.
#include <algorithm>
#include <unordered_map>

#include "ir/rewrite.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

bool Quantized(const Graph& g, const std::vector<ValueId>& values) {
  return std::any_of(values.begin(), values.end(), [&](ValueId v) { return v != kNone && g.type(v).per_tensor(); });
}

class Expansion {
 public:
  Result<Replacement> Rule(RewriteContext& c, NodeId id) {
    const OpId op = c.graph.node(id).op;
    if (op == OpId::kDelegate || ComputesOnIntegers(op)) return Replacement();
    if (!Quantized(c.graph, c.graph.node(id).operands) && !Quantized(c.graph, c.graph.node(id).results)) return Replacement();
    std::vector<ValueId> operands = c.graph.node(id).operands;
    for (ValueId& v : operands) {
      DT_ASSIGN_OR_RETURN(v, Real(c.builder, v));
    }
    const std::vector<ValueId> declared = c.graph.node(id).results;
    std::vector<ValueId> results = operands;
    if (op != OpId::kRequantize) {
      DT_ASSIGN_OR_RETURN(results, c.builder.EmitWith(op, std::move(operands), c.graph.node(id).attrs, declared.size()));
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const TensorType type = c.graph.type(declared[i]);
      if (!type.per_tensor()) continue;
      const NamedAttrs attrs = {{"scale", static_cast<double>(type.quant.scale)}, {"zero_point", type.quant.zero_point}, {"out_dtype", type.dtype}};
      DT_ASSIGN_OR_RETURN(results[i], c.builder.Emit(OpId::kQuantize, {results[i]}, attrs));
    }
    return Replacement(std::move(results));
  }

 private:
  // One dequantize for all users of a value.
  Result<ValueId> Real(Builder& b, ValueId v) {
    if (v == kNone || !b.type(v).per_tensor()) return v;
    if (auto it = real_.find(v); it != real_.end()) return it->second;
    const QuantParams q = b.type(v).quant;
    DT_ASSIGN_OR_RETURN(const ValueId real, b.Emit(OpId::kDequantize, {v}, {{"scale", static_cast<double>(q.scale)}, {"zero_point", q.zero_point}}));
    return real_[v] = real;
  }

  std::unordered_map<ValueId, ValueId> real_;
};

}  // namespace

Status ExpandQuantized(Module& module) {
  for (auto& g : module.graphs) {
    Expansion expansion;
    DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteGraph(module, *g, [&](RewriteContext& c, NodeId id) { return expansion.Rule(c, id); }));
  }
  return OkStatus();
}

}  // namespace dovetail
