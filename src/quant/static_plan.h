// Which nodes of a float graph compute on i8 under a static scheme, and which values must share their parameters.
//
// Layers (linears, convolutions, products with a constant matrix) always do. Between them, so do operators that have an integer form, where a quantized node
// gives them a value and, if they compute something of their own, a layer comes after them; anything else would only add roundings. What only moves or clamps
// elements has the same parameters for operand and result, so such values form groups.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "quant/quantize.h"

namespace dovetail {

enum class StaticRole : uint8_t {
  kFloat,
  kLayer,   // the first operand and the result have parameters of their own; the weight has one scale per channel
  kOwn,     // each operand and the result have parameters of their own
  kFixed,   // the result's parameters are the operator's
  kMove,    // operands and result have the same parameters
  kClamp,   // so they do, and the range that counts is the one after it
};

struct StaticRule {
  OpId op;
  StaticRole role;
  size_t operands;                        // how many, from the first, are data; SIZE_MAX: all
  bool (*fits)(const Graph&, const Node&);  // whether this node has the integer form; null: always
  float scale = 0;                        // of kFixed
  int32_t zero_point = 0;
};
// kFloat's rule where the operator has none, or this node does not fit it.
const StaticRule& StaticRuleOf(const Module& module, const Graph& graph, const Node& n);

class StaticPlan {
 public:
  // Both outlive this and stay as they are until the plan is made use of. Nodes that --keep-float names stay float.
  StaticPlan(const Module& module, const Graph& graph, const QuantizeOptions& options);

  // Leaves a node in float. What follows from it is found by the next Solve.
  void LeaveFloat(NodeId id, std::string reason);
  void Solve();

  // After Solve.
  bool quantized(NodeId id) const { return quantized_[id]; }
  const StaticRule& rule(NodeId id) const { return *rules_[id]; }
  std::span<const ValueId> data(const Node& n) const;  // its data operands
  // Why a layer is left in float; empty: it is not.
  const std::string& reason(NodeId id) const { return reasons_[id]; }
  // Whether some quantized node reads or makes the integers of `v`. False for constants.
  bool integer(ValueId v) const { return v < group_.size() && group_[v] != kNone; }
  // A value that names the group of `v`; v is integer.
  ValueId group(ValueId v) const { return group_[v]; }
  struct Group {
    std::vector<ValueId> ranges;              // the values whose ranges count together
    std::optional<QuantParams> fixed;
  };
  const std::map<ValueId, Group>& groups() const { return groups_; }

 private:
  void FindQuantized();
  void FindGroups();
  bool Holds(NodeId id, const std::vector<bool>& reaches) const;
  bool IsConstant(ValueId v) const { return graph_.producer_if(v, OpId::kConst) != nullptr; }
  bool MadeByQuantized(ValueId v) const { return graph_.value(v).producer != kNone && quantized_[graph_.value(v).producer]; }

  const Module& module_;
  const Graph& graph_;
  std::vector<const StaticRule*> rules_;
  std::vector<std::string> reasons_;
  std::vector<bool> quantized_, is_output_;
  std::vector<std::vector<NodeId>> users_;
  std::vector<ValueId> group_;
  std::map<ValueId, Group> groups_;
};

// Why a layer has no static form; empty: it has one. `n` is a linear, convolution or matmul with a constant matrix.
std::string StaticLayerProblem(const Module& module, const Graph& graph, const Node& n);
bool IsLayer(const Module& module, const Graph& graph, const Node& n);

}  // namespace dovetail
