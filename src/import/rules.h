// How operators of an export become ours: one line per operator in the table of its family (rules_*.cc).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "import/call.h"

namespace dovetail::pt2 {

// Emits the node and returns its results through the Call.
using RuleFn = void (*)(Call&);
struct Rule {
  std::string_view target;  // "aten.transpose.int"
  RuleFn apply;
};

extern const std::span<const Rule> kElementwiseRules, kViewRules, kReductionRules, kCreationRules, kNeuralRules, kIndexingRules, kInPlaceRules, kRecurrentRules,
    kQuantizedRules, kEinsumRules, kResamplingRules, kNormalizationRules;

inline constexpr std::string_view kTrainingMode = "the model was exported in training mode; call model.eval() before torch.export.export";

// The elements of a constant whose data are known.
std::vector<double> Numbers(const Constant& constant);

// In this order:
//  - a rule of the tables;
//  - an operator of ops.def that lists `target` among its `imports`: arguments go over by name;
//  - "aten.NAME_.OVERLOAD" where "aten.NAME.OVERLOAD" can be imported: its result is written to the first argument.
// False when there is none.
bool ApplyRule(std::string_view target, Call& call);

// Whether nodes of this operator only check something and have no effect on values.
bool IsAssertion(std::string_view target);

}  // namespace dovetail::pt2
