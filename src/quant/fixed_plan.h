// Which nodes of a module compute in fixed point, and which values must share their parameters.
//
// Every node that has a fixed-point form does, where it computes on activations: what depends on positions, masks and other integers alone is left to the
// cpu in float, so is what only such nodes read, and chains of moves that no computation touches. A state is in integers where such a node reads or writes
// it; then all that moves its rows has its parameters, in all methods.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "quant/fixed_rules.h"
#include "quant/masks.h"

namespace dovetail {

class FixedPlan {
 public:
  // Both outlive this, and the module's graphs stay as they are until the plan is made use of. What --keep-float names stays float.
  FixedPlan(const Module& module, const QuantizeOptions& options);

  // Leaves a node or a state in float. What follows from it is found by the next Solve.
  void LeaveFloat(size_t graph, NodeId id, std::string reason) { graphs_[graph].reasons[id] = std::move(reason); }
  void LeaveFloat(uint32_t state, std::string reason) { state_reasons_[state] = std::move(reason); }
  // Gives a value, and all of its group, 16 bits where the scheme has 8; from the next Solve on.
  void Widen(size_t graph, ValueId v) { graphs_[graph].wide[v] = true; }
  void Solve();

  // After Solve.
  bool quantized(size_t graph, NodeId id) const { return graphs_[graph].quantized[id]; }
  StaticRole role(size_t graph, NodeId id) const { return graphs_[graph].roles[id]; }
  const std::string& reason(size_t graph, NodeId id) const { return graphs_[graph].reasons[id]; }
  // Whether the value is, or is read as, integers. False for constants.
  bool integer(size_t graph, ValueId v) const { return graphs_[graph].first + v < graphs_[graph].end && group_[graphs_[graph].first + v] != kNone; }
  bool integer_state(uint32_t state) const { return group_[states_ + state] != kNone; }
  const std::string& state_reason(uint32_t state) const { return state_reasons_[state]; }
  // Names the group; the value or state is integer.
  uint32_t group(size_t graph, ValueId v) const { return group_[graphs_[graph].first + v]; }
  uint32_t group_of_state(uint32_t state) const { return group_[states_ + state]; }
  const Masks& masks(size_t graph) const { return graphs_[graph].masks; }
  // Whether its very low elements are masked ones and count for nothing.
  bool masked(size_t graph, ValueId v) const { return graphs_[graph].masks.scores[v] || graphs_[graph].masks.hidden[v]; }
  // Of the integers that stand for a group's values: u8 or u16. A linear's results that leave the graph have 16 bits: the greatest score of a class or token
  // may lie beyond all that calibration saw, and where it saturates it is one of many. A node computes on one type: on u16 if a group that it reads or makes
  // has that; it then reads others in 16 bits too, and what it makes for a group of 8 bits is narrowed.
  DType dtype(uint32_t group) const { return groups_.at(group).wide ? DType::kU16 : activation_; }
  DType dtype(size_t graph, NodeId id) const { return graphs_[graph].dtypes[id]; }

  struct Group {
    std::vector<std::pair<size_t, ValueId>> ranges;  // whose ranges count together: graph and value
    std::vector<uint32_t> states, constants;         // whose contents count too
    std::optional<OpId> fixed;                       // the operator of kFixed whose result it is, and of no other
    bool scores = false, wide = false;
    bool logits = false;                             // a linear's results that leave the graph
  };
  const std::map<uint32_t, Group>& groups() const { return groups_; }

 private:
  struct GraphPlan {
    size_t first, end;  // of its values among those of all graphs
    std::vector<StaticRole> roles;
    std::vector<std::string> reasons;
    std::vector<bool> quantized, is_output, active, wide;
    Masks masks;
    std::vector<std::vector<NodeId>> users;
    std::vector<std::vector<size_t>> data;  // by node
    std::vector<DType> dtypes;              // by node
  };

  void FindActive(size_t graph);
  void Unite();
  bool Drop();
  void FindGroups();
  void FindTypes();
  bool Same(size_t graph, NodeId id) const;
  bool IsConstant(size_t graph, ValueId v) const { return module_.graphs[graph]->producer_if(v, OpId::kConst) != nullptr; }
  uint32_t Find(size_t i);
  void Join(size_t a, size_t b);

  const Module& module_;
  DType activation_;
  std::vector<GraphPlan> graphs_;
  size_t states_ = 0;  // where states stand behind the values
  std::vector<std::string> state_reasons_;
  std::vector<uint32_t> parent_, group_;
  std::vector<bool> member_, touched_;  // touched: by name of the group
  std::map<uint32_t, Group> groups_;
};

}  // namespace dovetail
