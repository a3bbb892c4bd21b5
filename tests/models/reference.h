// Runs an imported model over the steps of a recording and compares with what PyTorch gave.
//
// NAME.ref.safetensors holds tensors in.STEP.LEAF, out.STEP.LEAF and mut.STEP.LEAF (an input's contents after the call); leaves are
// those of the model's inputs and results, tensors or not. All steps share one instance's state.
#pragma once

#include <map>
#include <string>

#include "ir/interpreter.h"

namespace dovetail::testing {

using Tensors = std::map<std::string, OwnedTensor>;
Result<Tensors> ReadSafetensors(const std::string& path);

struct Comparison {
  size_t steps = 0, tensors = 0;
  double worst = 0;        // largest difference as a part of the range of its output over all steps
  std::string worst_name;  // "out.3.0"
  StateStore states;       // after the last step, in the order of module.states
};
Result<Comparison> CompareWithReference(const Module& module, const Tensors& reference);

// Contents of two tensors of one type: the largest difference as a part of the range of `want`. Fails for tensors of two types.
Result<double> Difference(const OwnedTensor& got, const OwnedTensor& want);

}  // namespace dovetail::testing
