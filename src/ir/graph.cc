#include "ir/graph.h"

#include <algorithm>

#include "base/check.h"

namespace dovetail {

ValueId Graph::AddInput(std::string input_name, TensorType type) {
  const ValueId v = static_cast<ValueId>(values_.size());
  values_.push_back({std::move(type), std::move(input_name), kNone, 0});
  inputs.push_back(v);
  return v;
}

NodeId Graph::AddNode(OpId op) {
  nodes_.emplace_back();
  nodes_.back().op = op;
  return static_cast<NodeId>(nodes_.size() - 1);
}

NodeId Graph::AddCopy(const Node& node, std::vector<ValueId> operands) {
  Node copy;
  copy.op = node.op;
  copy.operands = std::move(operands);
  copy.attrs = node.attrs;
  copy.ref = node.ref;
  copy.location = node.location;
  nodes_.push_back(std::move(copy));
  return static_cast<NodeId>(nodes_.size() - 1);
}

ValueId Graph::AddResult(NodeId node, TensorType type, std::string result_name) {
  const ValueId v = static_cast<ValueId>(values_.size());
  values_.push_back({std::move(type), std::move(result_name), node, static_cast<uint32_t>(nodes_[node].results.size())});
  nodes_[node].results.push_back(v);
  return v;
}

const Node* Graph::producer_if(ValueId v, OpId op) const {
  if (v == kNone) return nullptr;
  const Node* n = producer(v);
  return n && n->op == op ? n : nullptr;
}

std::vector<uint32_t> Graph::CountUses() const {
  std::vector<uint32_t> uses(values_.size(), 0);
  for (NodeId id : order)
    for (ValueId v : nodes_[id].operands)
      if (v != kNone) ++uses[v];
  for (ValueId v : outputs) ++uses[v];
  return uses;
}

std::vector<std::vector<NodeId>> Graph::Users() const {
  std::vector<std::vector<NodeId>> users(values_.size());
  for (NodeId id : order)
    for (ValueId v : nodes_[id].operands)
      if (v != kNone && (users[v].empty() || users[v].back() != id)) users[v].push_back(id);
  return users;
}

void Graph::ReplaceUses(ValueId from, ValueId to) {
  for (NodeId id : order)
    std::replace(nodes_[id].operands.begin(), nodes_[id].operands.end(), from, to);
  std::replace(outputs.begin(), outputs.end(), from, to);
}

void Graph::RemoveDeadNodes() {
  std::vector<bool> live(values_.size(), false);
  for (ValueId v : outputs) live[v] = true;
  std::vector<NodeId> kept;
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const Node& n = nodes_[*it];
    const bool updates = n.op == OpId::kDelegate && n.region &&
                         std::any_of(n.region->aliases.begin(), n.region->aliases.end(), [](int a) { return a >= 0; });
    const bool effect = n.op == OpId::kStateWrite || updates ||
                        std::any_of(GetSchema(n.op).args.begin(), GetSchema(n.op).args.end(), [](const SchemaArg& a) { return a.written; });
    if (!effect && std::none_of(n.results.begin(), n.results.end(), [&](ValueId v) { return live[v]; })) continue;
    for (ValueId v : n.operands)
      if (v != kNone) live[v] = true;
    kept.push_back(*it);
  }
  order.assign(kept.rbegin(), kept.rend());
}

Graph* Module::FindGraph(std::string_view name) const {
  for (const auto& g : graphs)
    if (g->name == name) return g.get();
  return nullptr;
}

std::string DescribeNode(const Graph& graph, const Node& node) {
  std::string s;
  if (node.op >= OpId::kCount) return "an unknown operator";
  if (!node.results.empty() && node.results[0] < graph.num_values()) {
    const Value& v = graph.value(node.results[0]);
    s = StrCat("%", v.name.empty() ? std::to_string(node.results[0]) : v.name, " = ");
  }
  return s + std::string(GetOp(node.op).name);
}

std::string DescribeSource(const Module& module, const Node& node) {
  const Location* l = module.location(node);
  if (!l) return {};
  return l->module_path.empty() ? l->source : l->source.empty() ? "module " + l->module_path : StrCat(l->source, " (module ", l->module_path, ")");
}

const Attr& GetAttr(const Node& node, std::string_view name) {
  const SchemaArg* arg = GetSchema(node.op).Find(name);
  DT_CHECK(arg && !IsTensorKind(arg->kind));
  return node.attrs[static_cast<size_t>(arg->index)];
}

ValueId GetOperand(const Node& node, std::string_view name) {
  const Schema& schema = GetSchema(node.op);
  const SchemaArg* arg = schema.Find(name);
  DT_CHECK(arg && IsTensorKind(arg->kind) && !IsListOfTensors(arg->kind));
  const auto range = schema.OperandsOf(static_cast<size_t>(arg - schema.args.data()), node.operands.size());
  return node.operands[range.first];
}

const Constant* GetConstant(const Module& module, const Graph& graph, ValueId v) {
  const Node* n = graph.producer_if(v, OpId::kConst);
  return n ? &module.constants[n->ref] : nullptr;
}

bool SwapsLastTwo(const Node& permute) {
  const std::vector<Dim>& dims = GetAttr(permute, "dims").Dims();
  const int64_t rank = static_cast<int64_t>(dims.size());
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t expected = i == rank - 2 ? rank - 1 : i == rank - 1 ? rank - 2 : i;
    const Dim d = dims[static_cast<size_t>(i)];
    if (d != Dim(expected) && d != Dim(expected - rank)) return false;
  }
  return rank >= 2;
}

}  // namespace dovetail
