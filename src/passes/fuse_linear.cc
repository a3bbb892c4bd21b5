// matmul(x, W) with a constant W becomes linear(x, W^T); a bias added to it becomes its bias; a view that only joins or splits leading
// dims moves from before the linear to after it, where it meets its inverse.
#include <algorithm>

#include "passes/match.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

// The constant of rank 2 with its dims swapped, as a new constant of the module.
ValueId Transposed(RewriteContext& c, const Constant& w) {
  Constant t = w;
  std::swap(t.strides[0], t.strides[1]);
  std::swap(t.type.shape[0], t.type.shape[1]);
  const std::string suffix = ".permute";
  t.name = w.name.ends_with(suffix) ? w.name.substr(0, w.name.size() - suffix.size()) : w.name + ".t";
  // A weight transposed back is the original: use that one, so that it stays one.
  for (uint32_t i = 0; i < c.module.constants.size(); ++i) {
    const Constant& k = c.module.constants[i];
    if (k.storage.data() != t.storage.data() || k.offset != t.offset || k.strides != t.strides) continue;
    if (k.data_known && t.data_known && k.type == t.type && k.stored == t.stored) return c.builder.Const(i);
  }
  t.name = UniqueConstantName(c.module, t.name);
  c.module.constants.push_back(std::move(t));
  return c.builder.Const(static_cast<uint32_t>(c.module.constants.size() - 1));
}

Result<Replacement> MatmulToLinear(RewriteContext& c, const std::vector<ValueId>& operands) {
  const Constant* w = GetConstant(c.module, c.graph, operands[1]);
  if (!w || w->type.rank() != 2 || !IsFloat(w->type.dtype) || c.graph.type(operands[0]).rank() < 2) return Replacement();
  const Constant weight = *w;
  DT_ASSIGN_OR_RETURN(const ValueId y, c.builder.Emit(OpId::kLinear, {operands[0], Transposed(c, weight), kNone}));
  return Replacement(std::vector<ValueId>{y});
}

// linear(view(x)) = view(linear(x)) when the view keeps the last dim.
Result<Replacement> SinkView(RewriteContext& c, const std::vector<ValueId>& operands, const Shape& out) {
  const Node* view = c.graph.producer_if(operands[0], OpId::kView);
  if (!view) return Replacement();
  const ValueId x = view->operands[0];
  if (c.graph.type(x).rank() < 2 || c.graph.type(x).shape.back() != c.graph.type(operands[0]).shape.back()) return Replacement();
  DT_ASSIGN_OR_RETURN(const ValueId y, c.builder.Emit(OpId::kLinear, {x, operands[1], operands[2]}));
  DT_ASSIGN_OR_RETURN(const ValueId v, c.builder.Emit(OpId::kView, {y}, {{"size", std::vector<Dim>(out.begin(), out.end())}}));
  return Replacement(std::vector<ValueId>{v});
}

Result<Replacement> AddToBias(RewriteContext& c, const Node& n) {
  if (!IsNumber(GetAttr(n, "alpha"), 1)) return Replacement();
  for (int side = 0; side < 2; ++side) {
    const ValueId sum = n.operands[static_cast<size_t>(side)], b = n.operands[static_cast<size_t>(1 - side)];
    // Behind one view of the leading dims at most; canonicalize leaves no two.
    const Node* view = c.graph.producer_if(sum, OpId::kView);
    const ValueId y = view && !c.graph.type(sum).shape.empty() && c.graph.type(view->operands[0]).rank() > 0 &&
                              c.graph.type(view->operands[0]).shape.back() == c.graph.type(sum).shape.back() ? view->operands[0] : sum;
    const Node* linear = c.graph.producer_if(y, OpId::kLinear);
    const Constant* bias = GetConstant(c.module, c.graph, b);
    if (!linear || linear->operands[2] != kNone || !bias || bias->type.rank() != 1 || c.use_count(y) != 1 || c.use_count(sum) != 1) continue;
    if (bias->type.shape[0] != c.graph.type(y).shape.back() || bias->type.dtype != c.graph.type(y).dtype) continue;
    const Shape out = c.graph.type(sum).shape;
    DT_ASSIGN_OR_RETURN(ValueId v, c.builder.Emit(OpId::kLinear, {linear->operands[0], linear->operands[1], b}));
    if (out != c.graph.type(v).shape) {
      DT_ASSIGN_OR_RETURN(v, c.builder.Emit(OpId::kView, {v}, {{"size", std::vector<Dim>(out.begin(), out.end())}}));
    }
    return Replacement(std::vector<ValueId>{v});
  }
  return Replacement();
}

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  const OpId op = c.graph.node(id).op;
  const std::vector<ValueId> operands = c.graph.node(id).operands;
  if (op == OpId::kMatmul) return MatmulToLinear(c, operands);
  if (op == OpId::kLinear) return SinkView(c, operands, Shape(c.graph.type(c.graph.node(id).results[0]).shape));
  if (op == OpId::kAdd) return AddToBias(c, Node{.op = op, .operands = operands, .attrs = c.graph.node(id).attrs, .results = {}, .region = nullptr});
  return Replacement();
}

}  // namespace

Status FuseLinear(Module& module) {
  for (auto& g : module.graphs) {
    bool changed = true;
    for (int round = 0; changed && round < 4; ++round) {
      DT_ASSIGN_OR_RETURN(changed, RewriteGraph(module, *g, Rule));
    }
  }
  return OkStatus();
}

}  // namespace dovetail
