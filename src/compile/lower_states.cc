// Gives states their memory: after this pass a state.read is the state's memory itself, and a state.write is either already done by the
// node that made the value in place, or a copy at that point.
//
// An update index_put(read, ...) that is written back becomes index_put_ when nobody reads the old contents after it. Where somebody
// does, the old contents are copied (clone) right after the read. A delegate's aliased result is treated the same way, but where it cannot be
// in place it loses its alias.
#include "compile/lower_states.h"

#include <algorithm>
#include <unordered_map>

namespace dovetail {
namespace {

// The operand whose memory `result` of `n` may take, or -1.
int InPlaceOperand(const Node& n, uint32_t result) {
  if (n.op == OpId::kIndexPut || n.op == OpId::kIndexPutInplace) return 0;
  if (n.op == OpId::kDelegate) return n.region->aliases[result];
  return -1;
}

// ExecuTorch's index_put_ takes one list of positions and replaces what is there.
bool StockTakesInPlace(const Graph& graph, const Node& index_put) {
  if (GetAttr(index_put, "accumulate").Bool()) return false;
  size_t indices = 0;
  for (size_t i = 1; i + 1 < index_put.operands.size(); ++i) {
    if (index_put.operands[i] == kNone) continue;
    const TensorType& index = graph.type(index_put.operands[i]);
    if (index.rank() != 1 || index.dtype == DType::kBool) return false;
    ++indices;
  }
  return indices == 1;
}

class StateLowering {
 public:
  StateLowering(Module& module, Graph& graph, bool stock_runtime) : module_(module), graph_(graph), stock_runtime_(stock_runtime) {}

  Status Run() {
    Number();
    for (uint32_t s = 0; s < module_.states.size(); ++s) InPlace(s);
    std::vector<std::pair<NodeId, ValueId>> clones;  // after this node, of this value
    for (uint32_t s = 0; s < module_.states.size(); ++s) FindClones(s, clones);
    for (const auto& [after, value] : clones) DT_RETURN_IF_ERROR(InsertClone(after, value));
    return OkStatus();
  }

 private:
  void Number() {
    position_.assign(graph_.num_nodes(), 0);
    for (size_t i = 0; i < graph_.order.size(); ++i) position_[graph_.order[i]] = i;
    last_use_.assign(graph_.num_values(), 0);
    for (NodeId id : graph_.order)
      for (ValueId v : graph_.node(id).operands)
        if (v != kNone) last_use_[v] = position_[id];
    for (ValueId v : graph_.outputs) last_use_[v] = graph_.order.size();
    accesses_.clear();
    for (NodeId id : graph_.order) {
      const Node& n = graph_.node(id);
      if (n.op == OpId::kStateRead || n.op == OpId::kStateWrite) accesses_[n.ref].push_back(id);
    }
  }

  void InPlace(uint32_t s) {
    const std::vector<NodeId>& accesses = accesses_[s];
    for (size_t i = 0; i < accesses.size(); ++i) {
      const Node& write = graph_.node(accesses[i]);
      if (write.op != OpId::kStateWrite || i == 0) continue;
      const ValueId u = write.operands[0];
      const NodeId made_by = graph_.value(u).producer;
      const NodeId read = accesses[i - 1];  // nothing else touches the state between the two
      if (made_by == kNone || graph_.node(read).op != OpId::kStateRead) continue;
      Node& update = graph_.node(made_by);
      const int operand = InPlaceOperand(update, graph_.value(u).result);
      const ValueId r = graph_.node(read).results[0];
      if (operand < 0 || update.operands[static_cast<size_t>(operand)] != r) continue;
      if (stock_runtime_ && update.op == OpId::kIndexPut && !StockTakesInPlace(graph_, update)) continue;
      if (std::count(update.operands.begin(), update.operands.end(), r) != 1) continue;
      if (last_use_[r] > position_[made_by]) continue;
      // Later contents of the state must not be seen through u.
      if (i + 1 < accesses.size()) {
        bool overwritten = false;
        for (size_t k = i + 1; k < accesses.size(); ++k) overwritten |= graph_.node(accesses[k]).op == OpId::kStateWrite;
        if (overwritten) continue;
      }
      if (update.op == OpId::kIndexPut) update.op = OpId::kIndexPutInplace;
      written_at_[accesses[i]] = position_[made_by];
    }
  }

  void FindClones(uint32_t s, std::vector<std::pair<NodeId, ValueId>>& clones) {
    const std::vector<NodeId>& accesses = accesses_[s];
    for (size_t i = 0; i < accesses.size(); ++i) {
      if (graph_.node(accesses[i]).op != OpId::kStateRead) continue;
      const ValueId r = graph_.node(accesses[i]).results[0];
      for (size_t k = i + 1; k < accesses.size(); ++k) {
        if (graph_.node(accesses[k]).op != OpId::kStateWrite) continue;
        const ValueId written = graph_.node(accesses[k]).operands[0];
        // A write of r itself changes nothing while the state still holds r.
        if (written == r) continue;
        // An update in place changes the memory as it runs, so no other of its operands may be that memory.
        auto in_place = written_at_.find(accesses[k]);
        const bool late = in_place == written_at_.end() ? last_use_[r] > position_[accesses[k]]
                                                        : last_use_[r] > in_place->second || (last_use_[r] == in_place->second && !Updates(written, r));
        if (late) clones.emplace_back(accesses[i], r);
        break;
      }
    }
    // A delegate would update its operand in place although the result is not what the state becomes.
    for (NodeId id : graph_.order) {
      Node& n = graph_.node(id);
      if (n.op != OpId::kDelegate) continue;
      for (size_t result = 0; result < n.results.size(); ++result) {
        const int operand = n.region->aliases[result];
        if (operand < 0) continue;
        const ValueId v = n.operands[static_cast<size_t>(operand)];
        const Node* read = graph_.producer_if(v, OpId::kStateRead);
        if (!read || read->ref != s) continue;
        bool done = false;
        for (const auto& [write, at] : written_at_) done |= graph_.node(write).operands[0] == n.results[result];
        if (!done) n.region->aliases[result] = -1;
      }
    }
  }

  // Whether `v` is r updated in place.
  bool Updates(ValueId v, ValueId r) const {
    const Node& n = *graph_.producer(v);
    return n.operands[static_cast<size_t>(InPlaceOperand(n, graph_.value(v).result))] == r;
  }

  Status InsertClone(NodeId after, ValueId value) {
    std::vector<NodeId> made;
    Builder builder(module_, graph_, &made);
    builder.location = graph_.node(after).location;
    DT_ASSIGN_OR_RETURN(const ValueId copy, builder.Emit(OpId::kClone, {value}));
    graph_.ReplaceUses(value, copy);
    auto at = std::find(graph_.order.begin(), graph_.order.end(), after);
    graph_.order.insert(at + 1, made.begin(), made.end());
    return OkStatus();
  }

  Module& module_;
  Graph& graph_;
  bool stock_runtime_;
  std::vector<size_t> position_, last_use_;
  std::unordered_map<uint32_t, std::vector<NodeId>> accesses_;
  std::unordered_map<NodeId, size_t> written_at_;  // state.write -> position of the update in place
};

}  // namespace

bool IsStateMemory(const Graph& graph, ValueId v, uint32_t* state) {
  while (const Node* n = graph.producer(v)) {
    if (n->op == OpId::kStateRead) {
      *state = n->ref;
      return true;
    }
    int operand = -1;
    if (n->op == OpId::kIndexPutInplace) operand = 0;
    if (n->op == OpId::kDelegate) operand = n->region->aliases[graph.value(v).result];
    if (operand < 0) return false;
    v = n->operands[static_cast<size_t>(operand)];
  }
  return false;
}

Status LowerStates(Module& module, bool stock_runtime) {
  for (auto& g : module.graphs) {
    DT_RETURN_IF_ERROR(StateLowering(module, *g, stock_runtime).Run());
    // Outputs are memory of their own: never a state's, a constant's, an input's, nor one tensor twice.
    std::vector<ValueId> seen;
    Builder builder(module, *g);
    for (size_t i = 0; i < g->outputs.size(); ++i) {
      const ValueId v = g->outputs[i];
      uint32_t state;
      const Node* producer = g->producer(v);
      const bool own = producer && producer->op != OpId::kConst && !IsStateMemory(*g, v, &state) && std::find(seen.begin(), seen.end(), v) == seen.end();
      if (!own) {
        DT_ASSIGN_OR_RETURN(g->outputs[i], builder.Emit(OpId::kClone, {v}));
      }
      seen.push_back(g->outputs[i]);
    }
  }
  module.form = Form::kPlanned;
  return OkStatus();
}

}  // namespace dovetail
