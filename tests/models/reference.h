// Runs an imported model over the steps of a recording and compares with what PyTorch gave.
//
// NAME.ref.safetensors holds tensors in.STEP.LEAF, out.STEP.LEAF and mut.STEP.LEAF (an input's contents after the call); leaves are
// those of the model's inputs and results, tensors or not. All steps share one instance's state.
#pragma once

#include <functional>
#include <map>
#include <span>
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
// The same for anything that runs: one step takes the inputs in order and gives the outputs by name ("output_0", "mutated.x").
using StepFn = std::function<Result<Tensors>(const std::vector<OwnedTensor>& inputs)>;
Result<Comparison> CompareWithReference(const Tensors& reference, std::span<const std::string> input_names, const StepFn& run);

// Contents of two tensors of one type: the largest difference as a part of the range of `want`. Fails for tensors of two types.
Result<double> Difference(const OwnedTensor& got, const OwnedTensor& want);

}  // namespace dovetail::testing
