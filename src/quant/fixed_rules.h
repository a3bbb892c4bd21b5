// Which operators fixed-point hardware computes on integers, and how their operands and results share parameters.
#pragma once

#include <vector>

#include "quant/static_plan.h"

namespace dovetail {

// kFloat where the operator has no fixed-point form, or this node does not fit it.
StaticRole FixedRoleOf(const Module& module, const Graph& graph, const Node& n);

// The operands of a node that hold real numbers (indices into n.operands): not weights and biases of layers, indices, conditions.
std::vector<size_t> DataOperands(const Module& module, const Graph& graph, const Node& n);

// The result's parameters of an operator of kFixed: Qualcomm's, whose integers reach from 0 (sigmoid, softmax) or -1 (tanh) to a step below 1.
QuantParams FixedParamsOf(OpId op, DType activation);

}  // namespace dovetail
