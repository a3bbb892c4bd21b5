#include "quant/fixed_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "quant/layers.h"

namespace dovetail {
namespace {

std::string StateProblem(const State& s, const QuantizeOptions& options) {
  if (KeptFloat(options, s.name)) return "--keep-float asks for it";
  if (s.type.dtype != DType::kF32) return StrCat("it is ", Name(s.type.dtype));
  if (!s.initial.data_known) return "its initial contents are not in the file";
  std::vector<float> values(s.initial.nbytes() / sizeof(float));
  s.initial.CopyTo(reinterpret_cast<std::byte*>(values.data()));
  if (!std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); })) return "its initial contents are not all finite";
  return {};
}

bool IsF32(const Graph& g, ValueId v) { return v != kNone && g.type(v).dtype == DType::kF32; }

}  // namespace

FixedPlan::FixedPlan(const Module& module, const QuantizeOptions& options) : module_(module), activation_(options.scheme->activation) {
  for (const auto& g : module.graphs) {
    const Graph& graph = *g;
    GraphPlan p{states_, states_ + graph.num_values(), std::vector(graph.num_nodes(), StaticRole::kFloat), std::vector<std::string>(graph.num_nodes()), {},
                std::vector<bool>(graph.num_values()), {}, std::vector<bool>(graph.num_values()), FindMasks(module, graph), graph.Users(),
                std::vector<std::vector<size_t>>(graph.num_nodes()), {}};
    states_ = p.end;
    for (ValueId v : graph.outputs) p.is_output[v] = true;
    for (NodeId id : graph.order) {
      const Node& n = graph.node(id);
      if (n.results.empty()) continue;
      p.roles[id] = FixedRoleOf(module, graph, n);
      if (p.roles[id] == StaticRole::kFloat) continue;
      p.data[id] = DataOperands(module, graph, n);
      // Seen on the simulator of SDK 2.51: quotients of 8 bits go wrong where a sum or product of them enters a linear.
      if (n.op == OpId::kDiv && p.data[id].size() == 2) p.wide[n.results[0]] = true;
      const bool layer = p.roles[id] == StaticRole::kLayer;
      const Location* l = module.location(n);
      const std::string path = layer || n.op == OpId::kEmbedding ? LayerPath(module, graph, n) : l ? l->module_path : "";
      if (KeptFloat(options, path)) p.reasons[id] = "--keep-float asks for it";
      else if (layer) p.reasons[id] = IsConstant(graphs_.size(), n.operands[0]) ? "its input is a constant" : StaticLayerProblem(module, graph, n);
      else if (n.op == OpId::kEmbedding && IsConstant(graphs_.size(), n.operands[0]) && !GetConstant(module, graph, n.operands[0])->data_known)
        p.reasons[id] = "the data of its table are not in the file";
    }
    graphs_.push_back(std::move(p));
    FindActive(graphs_.size() - 1);
  }
  for (const State& s : module.states) state_reasons_.push_back(StateProblem(s, options));
  Solve();
}

// Values that depend on an f32 input, a state, or rows looked up in a constant.
void FixedPlan::FindActive(size_t graph) {
  const Graph& g = *module_.graphs[graph];
  std::vector<bool>& active = graphs_[graph].active;
  active.assign(g.num_values(), false);
  for (ValueId v : g.inputs) active[v] = IsF32(g, v);
  for (NodeId id : g.order) {
    const Node& n = g.node(id);
    const bool lookup = n.op == OpId::kEmbedding || n.op == OpId::kIndex || n.op == OpId::kIndexSelect;
    bool any = n.op == OpId::kStateRead || (lookup && IsF32(g, n.operands[0]) && IsConstant(graph, n.operands[0]));
    for (ValueId v : n.operands) any = any || (IsF32(g, v) && active[v]);
    for (ValueId v : n.results) active[v] = any && IsF32(g, v);
  }
}

// As long as graphs are what they were.
void FixedPlan::FindTypes() {
  for (size_t g = 0; g < graphs_.size(); ++g) {
    GraphPlan& p = graphs_[g];
    p.dtypes.assign(p.roles.size(), activation_);
    const auto wide = [&](ValueId v) { return integer(g, v) && dtype(group(g, v)) == DType::kU16; };
    for (NodeId id : module_.graphs[g]->order) {
      if (!p.quantized[id]) continue;
      const Node& n = module_.graphs[g]->node(id);
      if (wide(n.results[0]) || std::any_of(p.data[id].begin(), p.data[id].end(), [&](size_t i) { return wide(n.operands[i]); })) p.dtypes[id] = DType::kU16;
    }
  }
}

uint32_t FixedPlan::Find(size_t i) {
  while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
  return static_cast<uint32_t>(i);
}
void FixedPlan::Join(size_t a, size_t b) { parent_[std::max(Find(a), Find(b))] = std::min(Find(a), Find(b)); }

bool FixedPlan::Same(size_t graph, NodeId id) const {
  const GraphPlan& p = graphs_[graph];
  return p.quantized[id] && (p.roles[id] == StaticRole::kMove || p.roles[id] == StaticRole::kClamp);
}

void FixedPlan::Solve() {
  for (size_t g = 0; g < graphs_.size(); ++g) {
    GraphPlan& p = graphs_[g];
    p.quantized.assign(p.roles.size(), false);
    for (NodeId id : module_.graphs[g]->order) {
      const Node& n = module_.graphs[g]->node(id);
      if (p.roles[id] == StaticRole::kFloat || !p.reasons[id].empty()) continue;
      p.quantized[id] = p.roles[id] == StaticRole::kLayer || p.active[n.results[0]];
    }
  }
  do Unite();
  while (Drop());
  FindGroups();
  FindTypes();
}

// Groups of the nodes that are quantized as yet, and which of them some computation touches.
void FixedPlan::Unite() {
  parent_.resize(states_ + module_.states.size());
  std::iota(parent_.begin(), parent_.end(), 0);
  member_.assign(parent_.size(), false);
  std::vector<size_t> computed;
  for (size_t g = 0; g < graphs_.size(); ++g) {
    const GraphPlan& p = graphs_[g];
    const Graph& graph = *module_.graphs[g];
    for (NodeId id : graph.order) {
      const Node& n = graph.node(id);
      if ((n.op == OpId::kStateRead || n.op == OpId::kStateWrite) && state_reasons_[n.ref].empty()) {
        const ValueId v = n.op == OpId::kStateRead ? n.results[0] : n.operands[0];
        if (IsConstant(g, v)) continue;
        member_[p.first + v] = member_[states_ + n.ref] = true;
        Join(p.first + v, states_ + n.ref);
      }
      if (n.results.empty() || !p.quantized[id]) continue;
      const size_t result = p.first + n.results[0];
      member_[result] = true;
      if (p.roles[id] != StaticRole::kMove) computed.push_back(result);
      for (size_t i : p.data[id]) {
        const ValueId v = n.operands[i];
        if (IsConstant(g, v)) continue;
        member_[p.first + v] = true;
        if (p.roles[id] != StaticRole::kMove) computed.push_back(p.first + v);
        if (Same(g, id)) Join(p.first + v, result);
      }
    }
  }
  touched_.assign(parent_.size(), false);
  for (size_t i : computed) touched_[Find(i)] = true;
}

// Drops what no computation touches, and what would stand alone: neither do its operands come from a computation in fixed point, nor does its result go to one,
// to a state or out.
bool FixedPlan::Drop() {
  bool dropped = false;
  for (size_t g = 0; g < graphs_.size(); ++g) {
    GraphPlan& p = graphs_[g];
    const Graph& graph = *module_.graphs[g];
    std::vector<bool> made(graph.num_values(), false), needed = p.is_output;  // through moves
    for (NodeId id : graph.order) {
      const Node& n = graph.node(id);
      if (n.op == OpId::kStateRead) made[n.results[0]] = true;
      if (n.results.empty() || !p.quantized[id]) continue;
      made[n.results[0]] = p.roles[id] != StaticRole::kMove || std::any_of(p.data[id].begin(), p.data[id].end(), [&](size_t i) {
                             return made[n.operands[i]] || (IsConstant(g, n.operands[i]) && n.operands.size() > p.data[id].size());
                           });
    }
    for (auto it = graph.order.rbegin(); it != graph.order.rend(); ++it) {
      const Node& n = graph.node(*it);
      if (n.op == OpId::kStateWrite) needed[n.operands[0]] = true;
      if (n.results.empty() || !p.quantized[*it] || (p.roles[*it] == StaticRole::kMove && !needed[n.results[0]])) continue;
      for (size_t i : p.data[*it]) needed[n.operands[i]] = true;
    }
    for (NodeId id : graph.order) {
      if (!p.quantized[id]) continue;
      const Node& n = graph.node(id);
      const bool serves = p.roles[id] == StaticRole::kLayer || needed[n.results[0]] ||
                          std::any_of(p.data[id].begin(), p.data[id].end(), [&](size_t i) { return made[n.operands[i]]; });
      if (p.roles[id] == StaticRole::kMove ? touched_[Find(p.first + n.results[0])] : serves) continue;
      p.quantized[id] = false;
      dropped = true;
    }
  }
  return dropped;
}

void FixedPlan::FindGroups() {
  group_.assign(parent_.size(), kNone);
  groups_.clear();
  std::vector<bool> mixed(parent_.size(), false);   // groups with values that are no fixed operator's results
  std::vector<bool> output(parent_.size(), false);  // and with values that leave a graph
  for (size_t g = 0; g < graphs_.size(); ++g) {
    const GraphPlan& p = graphs_[g];
    const Graph& graph = *module_.graphs[g];
    for (ValueId v = 0; v < graph.num_values(); ++v) {
      const size_t i = p.first + v;
      if (!member_[i] || !touched_[Find(i)]) continue;
      const uint32_t name = group_[i] = Find(i);
      Group& group = groups_[name];
      group.scores = group.scores || p.masks.scores[v];
      group.wide = group.wide || p.wide[v];
      output[name] = output[name] || p.is_output[v];
      // Of values that only pass through moves and clamps, the range at the end counts.
      const std::vector<NodeId>& users = p.users[v];
      if (p.is_output[v] || users.empty() || !std::all_of(users.begin(), users.end(), [&](NodeId u) { return Same(g, u); })) group.ranges.emplace_back(g, v);
      const NodeId producer = graph.value(v).producer;
      if (producer != kNone && Same(g, producer)) {
        const Node& n = graph.node(producer);
        for (size_t operand : p.data[producer])
          if (const uint32_t c = ConstantOf(graph, n.operands[operand]); c != kNone) group.constants.push_back(c);
        continue;
      }
      group.logits = group.logits || (producer != kNone && p.roles[producer] == StaticRole::kLayer && graph.node(producer).op != OpId::kConvolution);
      const bool fixed = producer != kNone && p.quantized[producer] && p.roles[producer] == StaticRole::kFixed;
      const OpId op = fixed ? graph.node(producer).op : OpId::kCount;
      if (!fixed || (group.fixed && (*group.fixed == OpId::kTanh) != (op == OpId::kTanh))) mixed[name] = true;
      else group.fixed = op;
    }
  }
  for (uint32_t s = 0; s < module_.states.size(); ++s) {
    if (!member_[states_ + s] || !touched_[Find(states_ + s)]) continue;
    const uint32_t name = group_[states_ + s] = Find(states_ + s);
    groups_[name].states.push_back(s);
    mixed[name] = true;
  }
  for (auto& [name, group] : groups_) {
    if (mixed[name] || !group.constants.empty()) group.fixed.reset();
    group.logits = group.logits && output[name] && group.states.empty();
    group.wide = group.wide || group.logits;
  }
}

}  // namespace dovetail
