#include "quant/static_plan.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "ops/infer_util.h"
#include "quant/layers.h"

namespace dovetail {
namespace {

bool PlainSum(const Graph&, const Node& n) { return GetAttr(n, "alpha").Number() == 1; }
bool OverSpace(const Graph& g, const Node& n) {
  const size_t rank = g.type(n.operands[0]).rank();
  if (GetAttr(n, "dim").is_none() || rank < 3) return false;
  const std::span<const Dim> dims = DimsOf(GetAttr(n, "dim"));
  return !dims.empty() && std::all_of(dims.begin(), dims.end(), [&](Dim d) {
    const Result<size_t> axis = NormalizeAxis(d.value(), rank);
    return axis.ok() && *axis >= 2;
  });
}
bool NoIndices(const Graph& g, const Node& n) { return g.CountUses()[n.results[1]] == 0; }
bool PadsWithZero(const Graph&, const Node& n) { return GetAttr(n, "value").Number(0) == 0; }

constexpr size_t kAll = SIZE_MAX;
constexpr StaticRule kFloatRule = {OpId::kCount, StaticRole::kFloat, 0, nullptr};
constexpr StaticRule kRules[] = {
    {OpId::kLinear, StaticRole::kLayer, 1, nullptr},
    {OpId::kConvolution, StaticRole::kLayer, 1, nullptr},
    {OpId::kMatmul, StaticRole::kLayer, 1, nullptr},
    {OpId::kAdd, StaticRole::kOwn, 2, PlainSum},
    {OpId::kSub, StaticRole::kOwn, 2, PlainSum},
    {OpId::kMul, StaticRole::kOwn, 2, nullptr},
    {OpId::kAvgPool2d, StaticRole::kOwn, 1, nullptr},
    {OpId::kMean, StaticRole::kOwn, 1, OverSpace},
    // XNNPACK's requirements of qs8.
    {OpId::kSigmoid, StaticRole::kFixed, 1, nullptr, 1.0f / 256, -128},
    {OpId::kTanh, StaticRole::kFixed, 1, nullptr, 1.0f / 128, 0},
    {OpId::kView, StaticRole::kMove, 1, nullptr},
    {OpId::kPermute, StaticRole::kMove, 1, nullptr},
    {OpId::kExpand, StaticRole::kMove, 1, nullptr},
    {OpId::kSlice, StaticRole::kMove, 1, nullptr},
    {OpId::kCat, StaticRole::kMove, kAll, nullptr},
    {OpId::kClone, StaticRole::kMove, 1, nullptr},
    {OpId::kIndexSelect, StaticRole::kMove, 1, nullptr},
    {OpId::kReflectionPad1d, StaticRole::kMove, 1, nullptr},
    {OpId::kConstantPadNd, StaticRole::kMove, 1, PadsWithZero},
    {OpId::kMaxPool2dWithIndices, StaticRole::kMove, 1, NoIndices},
    {OpId::kRelu, StaticRole::kClamp, 1, nullptr},
    {OpId::kHardtanh, StaticRole::kClamp, 1, nullptr},
    {OpId::kClamp, StaticRole::kClamp, 1, nullptr},
};

bool IsF32(const Graph& g, ValueId v) { return v != kNone && g.type(v).dtype == DType::kF32 && g.type(v).quant.kind == QuantParams::Kind::kNone; }

}  // namespace

bool IsLayer(const Module& module, const Graph& graph, const Node& n) {
  if (n.op == OpId::kLinear || n.op == OpId::kConvolution) return true;
  if (n.op != OpId::kMatmul) return false;
  const Constant* w = GetConstant(module, graph, n.operands[1]);
  return w && w->type.rank() == 2;  // a product of two activations is no layer
}

std::string StaticLayerProblem(const Module& module, const Graph& graph, const Node& n) {
  const DType dtype = graph.type(n.results[0]).dtype;
  if (dtype != DType::kF32) return StrCat("it computes in ", Name(dtype), "; only f32 layers are quantized");
  const Constant* w = GetConstant(module, graph, n.operands[1]);
  if (!w) return "its weight is computed by the model, not a constant";
  if (!w->data_known) return "the data of its weight are not in the file";
  if (n.op == OpId::kLinear && w->type.rank() != 2) return "its weight is a vector";
  if (graph.type(n.results[0]).shape.numel() == Dim(0)) return "its result is empty";
  const bool transposed = n.op == OpId::kConvolution && GetAttr(n, "transposed").Bool();
  if (transposed && GetAttr(n, "groups").Int(1) != 1) return "a transposed convolution in groups: its output channels lie on two dims of the weight";
  if (n.op == OpId::kMatmul || n.operands[2] == kNone) return {};
  const Constant* b = GetConstant(module, graph, n.operands[2]);
  if (!b) return "its bias is computed by the model, not a constant";
  if (!b->data_known) return "the data of its bias are not in the file";
  if (b->type != TensorType(DType::kF32, {w->type.shape[transposed ? 1 : 0]})) return "its bias is not one f32 number for each output";
  return {};
}

const StaticRule& StaticRuleOf(const Module& module, const Graph& graph, const Node& n) {
  const auto* rule = std::find_if(std::begin(kRules), std::end(kRules), [&](const StaticRule& r) { return r.op == n.op; });
  if (rule == std::end(kRules)) return kFloatRule;
  if (rule->role == StaticRole::kLayer && !IsLayer(module, graph, n)) return kFloatRule;
  if (rule->fits && !rule->fits(graph, n)) return kFloatRule;
  bool f32 = IsF32(graph, n.results[0]);
  for (size_t i = 0; i < std::min(rule->operands, n.operands.size()); ++i) f32 = f32 && IsF32(graph, n.operands[i]);
  return f32 || rule->role == StaticRole::kLayer ? *rule : kFloatRule;
}

StaticPlan::StaticPlan(const Module& module, const Graph& graph, const QuantizeOptions& options)
    : module_(module),
      graph_(graph),
      rules_(graph.num_nodes(), &kFloatRule),
      reasons_(graph.num_nodes()),
      is_output_(graph.num_values()),
      users_(graph.Users()) {
  for (ValueId v : graph.outputs) is_output_[v] = true;
  for (NodeId id : graph.order) {
    const Node& n = graph.node(id);
    const StaticRule& rule = StaticRuleOf(module, graph, n);
    if (rule.role == StaticRole::kFloat) continue;
    rules_[id] = &rule;
    const Location* l = module.location(n);
    const bool layer = rule.role == StaticRole::kLayer;
    if (KeptFloat(options, layer ? LayerPath(module, graph, n) : l ? l->module_path : "")) LeaveFloat(id, "--keep-float asks for it");
    else if (layer) reasons_[id] = StaticLayerProblem(module, graph, n);
  }
  Solve();
}

void StaticPlan::LeaveFloat(NodeId id, std::string reason) { reasons_[id] = std::move(reason); }

void StaticPlan::Solve() {
  // The parameters of a fixed operator's result cannot be those of a group that has them from elsewhere.
  for (bool conflict = true; conflict;) {
    FindQuantized();
    FindGroups();
    conflict = false;
    for (NodeId id : graph_.order) {
      if (!quantized_[id] || rules_[id]->role != StaticRole::kFixed) continue;
      if (groups_.at(group_[graph_.node(id).results[0]]).fixed) continue;
      LeaveFloat(id, "its result shares its parameters with other values");
      conflict = true;
    }
  }
}

std::span<const ValueId> StaticPlan::data(const Node& n) const {
  const NodeId id = graph_.value(n.results[0]).producer;
  return std::span(n.operands).first(std::min(rules_[id]->operands, n.operands.size()));
}

bool StaticPlan::Holds(NodeId id, const std::vector<bool>& reaches) const {
  const Node& n = graph_.node(id);
  size_t constants = 0, made = 0;
  for (ValueId v : data(n)) {
    if (IsConstant(v)) ++constants;
    else made += MadeByQuantized(v);
  }
  const bool compute = rules_[id]->role == StaticRole::kOwn || rules_[id]->role == StaticRole::kFixed;
  if (compute) return made > 0 && reaches[n.results[0]];
  if (constants == data(n).size()) {  // worth it only as an operand of quantized nodes
    const std::vector<NodeId>& users = users_[n.results[0]];
    return !is_output_[n.results[0]] && !users.empty() && std::all_of(users.begin(), users.end(), [&](NodeId u) { return quantized_[u]; });
  }
  return made + constants == data(n).size() || (made > 0 && reaches[n.results[0]]);
}

// The largest set in which every node holds: begins with all and drops those that do not, until none is dropped.
void StaticPlan::FindQuantized() {
  quantized_.assign(graph_.num_nodes(), false);
  for (NodeId id : graph_.order) quantized_[id] = rules_[id]->role != StaticRole::kFloat && reasons_[id].empty();
  for (bool dropped = true; dropped;) {
    dropped = false;
    std::vector<bool> reaches(graph_.num_values(), false);  // a quantized layer, through quantized nodes
    for (auto it = graph_.order.rbegin(); it != graph_.order.rend(); ++it) {
      if (!quantized_[*it]) continue;
      const Node& n = graph_.node(*it);
      for (ValueId v : data(n))
        if (rules_[*it]->role == StaticRole::kLayer || reaches[n.results[0]]) reaches[v] = true;
    }
    for (NodeId id : graph_.order) {
      if (!quantized_[id] || rules_[id]->role == StaticRole::kLayer || Holds(id, reaches)) continue;
      quantized_[id] = false;
      dropped = true;
    }
  }
}

void StaticPlan::FindGroups() {
  std::vector<ValueId> parent(graph_.num_values());
  std::iota(parent.begin(), parent.end(), 0);
  const auto find = [&](ValueId v) {
    while (parent[v] != v) v = parent[v] = parent[parent[v]];
    return v;
  };
  std::vector<bool> member(graph_.num_values(), false);
  const auto same = [&](NodeId id) { return quantized_[id] && (rules_[id]->role == StaticRole::kMove || rules_[id]->role == StaticRole::kClamp); };
  for (NodeId id : graph_.order) {
    if (!quantized_[id]) continue;
    const Node& n = graph_.node(id);
    member[n.results[0]] = true;
    for (ValueId v : data(n)) {
      if (IsConstant(v)) continue;
      member[v] = true;
      if (same(id)) parent[std::max(find(v), find(n.results[0]))] = std::min(find(v), find(n.results[0]));
    }
  }
  group_.assign(graph_.num_values(), kNone);
  groups_.clear();
  std::set<ValueId> mixed;  // groups with values whose parameters are not fixed
  for (ValueId v = 0; v < graph_.num_values(); ++v) {
    if (!member[v]) continue;
    const ValueId root = group_[v] = find(v);
    Group& g = groups_[root];
    // Of values that only pass through moves and clamps, the range at the end counts.
    const bool ends = is_output_[v] || users_[v].empty() || !std::all_of(users_[v].begin(), users_[v].end(), same);
    if (ends) g.ranges.push_back(v);
    const NodeId producer = graph_.value(v).producer;
    if (producer != kNone && same(producer)) continue;
    std::optional<QuantParams> fixed;
    if (producer != kNone && quantized_[producer] && rules_[producer]->role == StaticRole::kFixed)
      fixed = QuantParams::PerTensor(rules_[producer]->scale, rules_[producer]->zero_point);
    if (!fixed || (g.fixed && g.fixed != fixed)) mixed.insert(root);
    if (fixed) g.fixed = fixed;
  }
  for (ValueId root : mixed) groups_[root].fixed.reset();
}

}  // namespace dovetail
