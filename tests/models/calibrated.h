// What tests of calibrated schemes share: exported models with the calls that were recorded of them.
#pragma once

#include <gtest/gtest.h>

#include "import/import.h"
#include "models/reference.h"
#include "passes/passes.h"
#include "quant/static_samples.h"

namespace dovetail::samples {

using Call = std::vector<OwnedTensor>;

inline Module CoreOf(const std::string& model) {
  auto module = ImportPt2(StrCat("tests/fixtures/", model, ".pt2"));
  EXPECT_TRUE(module.ok()) << module.status().ToString();
  if (!module.ok()) return {};
  for (const Pass& pass : CorePasses()) {
    const Status s = RunPass(pass, *module);
    EXPECT_TRUE(s.ok()) << s.ToString();
  }
  return std::move(*module);
}

inline std::vector<Call> RecordedCalls(const std::string& model) {
  auto reference = dovetail::testing::ReadSafetensors(StrCat("tests/fixtures/", model, ".ref.safetensors"));
  EXPECT_TRUE(reference.ok()) << reference.status().ToString();
  std::vector<Call> calls;
  for (size_t step = 0; reference.ok(); ++step) {
    Call inputs;
    for (size_t leaf = 0; reference->contains(StrCat("in.", step, ".", leaf)); ++leaf) inputs.push_back(reference->at(StrCat("in.", step, ".", leaf)));
    if (inputs.empty()) break;
    calls.push_back(std::move(inputs));
  }
  return calls;
}

inline QuantizeReport QuantizeWith(Module& module, const std::vector<Call>& calls, QuantizeOptions options) {
  const TempFolder folder;
  for (size_t i = 0; i < calls.size(); ++i) {
    std::vector<std::pair<std::string, OwnedTensor>> inputs;
    for (size_t k = 0; k < calls[i].size(); ++k) inputs.emplace_back(StrCat("input_", k), calls[i][k]);
    folder.Write(StrCat(100 + i, ".npz"), inputs);
  }
  if (options.scheme->activations != Activations::kHalf) options.calibration = {folder.path()};
  QuantizeReport report;
  const Status s = Quantize(module, options, report);
  EXPECT_TRUE(s.ok()) << s.ToString();
  return report;
}

// The first output of each call.
inline std::vector<OwnedTensor> RunCalls(const Module& module, const std::vector<Call>& calls, const InterpretOptions& options = {}) {
  auto states = InitStates(module);
  EXPECT_TRUE(states.ok());
  std::vector<OwnedTensor> first;
  for (const Call& call : calls) {
    auto outputs = Interpret(module, *module.graphs[0], call, *states, options);
    EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
    if (!outputs.ok()) return first;
    first.push_back((*outputs)[0]);
  }
  return first;
}

inline size_t ArgMax(const float* row, size_t n) { return static_cast<size_t>(std::max_element(row, row + n) - row); }
// Of the rows of the last dim, the part whose largest element stays the same.
inline double SameChoice(const OwnedTensor& a, const OwnedTensor& b) {
  const size_t n = static_cast<size_t>(a.view().sizes[a.view().rank - 1]), rows = static_cast<size_t>(a.view().numel()) / n;
  size_t same = 0;
  for (size_t r = 0; r < rows; ++r) same += ArgMax(a.view().as<float>() + r * n, n) == ArgMax(b.view().as<float>() + r * n, n);
  return static_cast<double>(same) / static_cast<double>(rows);
}

inline size_t CountOp(const Module& m, OpId op) {
  const Graph& g = *m.graphs[0];
  return static_cast<size_t>(std::count_if(g.order.begin(), g.order.end(), [&](NodeId id) { return g.node(id).op == op; }));
}

inline OwnedTensor FirstRows(const OwnedTensor& t, int64_t rows) {
  TensorView v = t.view();
  v.sizes[0] = rows;
  return OwnedTensor::CopyOf(v);
}

}  // namespace dovetail::samples
