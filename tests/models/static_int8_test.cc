// The scheme int8 on exported models: accuracy, and states through calibration and after it.
#include <gtest/gtest.h>

#include "compile/partition.h"
#include "import/import.h"
#include "ir/verifier.h"
#include "kernels/kernels.h"
#include "models/reference.h"
#include "passes/passes.h"
#include "quant/static_samples.h"

namespace dovetail {
namespace {

using samples::Sqnr;
using samples::TempFolder;
using samples::Values;
using Call = std::vector<OwnedTensor>;

Module CoreOf(const std::string& model) {
  auto module = ImportPt2(StrCat("tests/fixtures/", model, ".pt2"));
  EXPECT_TRUE(module.ok()) << module.status().ToString();
  if (!module.ok()) return {};
  for (const Pass& pass : CorePasses()) {
    const Status s = RunPass(pass, *module);
    EXPECT_TRUE(s.ok()) << s.ToString();
  }
  return std::move(*module);
}

std::vector<Call> RecordedCalls(const std::string& model) {
  auto reference = testing::ReadSafetensors(StrCat("tests/fixtures/", model, ".ref.safetensors"));
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

QuantizeReport QuantizeWith(Module& module, const std::vector<Call>& calls) {
  const TempFolder folder;
  QuantizeOptions options;
  options.scheme = FindScheme("int8");
  for (size_t i = 0; i < calls.size(); ++i) {
    std::vector<std::pair<std::string, OwnedTensor>> inputs;
    for (size_t k = 0; k < calls[i].size(); ++k) inputs.emplace_back(StrCat("input_", k), calls[i][k]);
    folder.Write(StrCat(100 + i, ".npz"), inputs);
  }
  options.calibration = {folder.path()};
  QuantizeReport report;
  const Status s = Quantize(module, options, report);
  EXPECT_TRUE(s.ok()) << s.ToString();
  return report;
}

// The first output of each call.
std::vector<OwnedTensor> RunCalls(const Module& module, const std::vector<Call>& calls, const InterpretOptions& options = {}) {
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

size_t ArgMax(const float* row, size_t n) { return static_cast<size_t>(std::max_element(row, row + n) - row); }
// Of the rows of the last dim, the part whose largest element stays the same.
double SameChoice(const OwnedTensor& a, const OwnedTensor& b) {
  const size_t n = static_cast<size_t>(a.view().sizes[a.view().rank - 1]), rows = static_cast<size_t>(a.view().numel()) / n;
  size_t same = 0;
  for (size_t r = 0; r < rows; ++r) same += ArgMax(a.view().as<float>() + r * n, n) == ArgMax(b.view().as<float>() + r * n, n);
  return static_cast<double>(same) / static_cast<double>(rows);
}

size_t CountOp(const Module& m, OpId op) {
  const Graph& g = *m.graphs[0];
  return static_cast<size_t>(std::count_if(g.order.begin(), g.order.end(), [&](NodeId id) { return g.node(id).op == op; }));
}

OwnedTensor FirstRows(const OwnedTensor& t, int64_t rows) {
  TensorView v = t.view();
  v.sizes[0] = rows;
  return OwnedTensor::CopyOf(v);
}

TEST(StaticInt8Models, DigitsKeepTheirAnswers) {
  const Module before = CoreOf("digits_cnn_trained");
  Module after = CoreOf("digits_cnn_trained");
  const std::vector<Call> calls = RecordedCalls("digits_cnn_trained");
  ASSERT_EQ(calls.size(), 1u);
  const QuantizeReport report = QuantizeWith(after, {{FirstRows(calls[0][0], 64)}});
  EXPECT_EQ(report.layers.size(), 5u);
  for (const LayerReport& l : report.layers) EXPECT_EQ(l.became, "i8 per_tensor x i8 per_channel") << l.path << ": " << l.reason;
  EXPECT_TRUE(report.warnings.empty());
  // One quantize of the input, one dequantize of the result, integers between.
  EXPECT_EQ(CountOp(after, OpId::kQuantize), 1u) << Print(after);
  EXPECT_EQ(CountOp(after, OpId::kDequantize), 1u) << Print(after);
  const auto want = RunCalls(before, calls), got = RunCalls(after, calls);
  EXPECT_GE(Sqnr(Values(want[0]), Values(got[0])), 35);  // measured 36.0
  EXPECT_GE(SameChoice(want[0], got[0]), 0.99);
}

// After partitioning without any backend the operators are spelled out; the meaning stays to the bit.
TEST(StaticInt8Models, SpelledOutItIsTheSame) {
  for (const std::string model : {"digits_cnn_trained", "llama_tiny_index_put"}) {
    Module module = CoreOf(model);
    const std::vector<Call> calls = RecordedCalls(model);
    QuantizeWith(module, calls);
    const auto want = RunCalls(module, calls);
    ASSERT_TRUE(Partition(module, {}).ok());
    const Status s = RunPass(*FindPass("expand_quantized"), module);
    ASSERT_TRUE(s.ok()) << s.ToString();
    for (NodeId id : module.graphs[0]->order) {
      const Node& n = module.graphs[0]->node(id);
      for (ValueId v : n.operands)
        EXPECT_TRUE(v == kNone || ComputesOnIntegers(n.op) || !module.graphs[0]->type(v).per_tensor()) << DescribeNode(*module.graphs[0], n);
    }
    const auto got = RunCalls(module, calls);
    for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(Values(want[i]), Values(got[i])) << model << " call " << i;
  }
}

TEST(StaticInt8Models, OptimizedKernelsSeeTheSameValues) {
  for (const std::string model : {"digits_cnn_trained", "llama_tiny_index_put", "silero_vad_stateful"}) {
    const Module module = CoreOf(model);
    const std::vector<Call> calls = RecordedCalls(model);
    const auto want = RunCalls(module, calls), got = RunCalls(module, calls, {nullptr, FindKernel, FindScratch, nullptr});
    for (size_t i = 0; i < want.size(); ++i) {
      const std::vector<float> a = Values(want[i]), b = Values(got[i]);
      for (size_t k = 0; k < a.size(); ++k) EXPECT_NEAR(a[k], b[k], 1e-4) << model << " call " << i;
    }
  }
}

// Speech after near silence: the spectrum of quiet calls is below one step of a range that holds the loud ones (5 dB in the second call).
TEST(StaticInt8Models, QuietCallsKeepTheirAnswers) {
  const std::string model = "silero_vad_stateful";
  const Module before = CoreOf(model);
  Module after = CoreOf(model);
  const std::vector<Call> calls = RecordedCalls(model);
  ASSERT_EQ(calls.size(), 40u);
  const QuantizeReport report = QuantizeWith(after, calls);
  for (const LayerReport& l : report.layers) EXPECT_FALSE(l.became.empty()) << l.path << ": " << l.reason;
  const auto want = RunCalls(before, calls), got = RunCalls(after, calls);
  std::vector<float> all_want, all_got;
  for (size_t i = 0; i < want.size(); ++i) {
    all_want.push_back(Values(want[i])[0]);
    all_got.push_back(Values(got[i])[0]);
  }
  EXPECT_GE(Sqnr(Values(want[1]), Values(got[1])), 20);
  EXPECT_GE(Sqnr(all_want, all_got), 33);  // measured 36.5
}

class StaticInt8States : public ::testing::TestWithParam<const char*> {};

TEST_P(StaticInt8States, CallsSeeEarlierWrites) {
  const std::string model = GetParam();
  const Module before = CoreOf(model);
  Module after = CoreOf(model);
  const std::vector<Call> calls = RecordedCalls(model);
  ASSERT_GE(calls.size(), 3u);
  const QuantizeReport report = QuantizeWith(after, calls);
  EXPECT_EQ(CountOp(after, OpId::kQuantizedLinear), 15u);
  for (const LayerReport& l : report.layers) EXPECT_FALSE(l.became.empty()) << l.path << ": " << l.reason;

  const StateSets sets = CollectStates(before), now = CollectStates(after);
  EXPECT_EQ(now.written, sets.written);
  EXPECT_EQ(now.read, sets.read);
  EXPECT_FALSE(now.written.empty());
  auto initial = InitStates(before), kept = InitStates(after);
  ASSERT_TRUE(initial.ok() && kept.ok());
  ASSERT_EQ(initial->size(), kept->size());
  for (size_t i = 0; i < initial->size(); ++i) {
    EXPECT_EQ((*kept)[i].type, (*initial)[i].type);
    EXPECT_EQ((*kept)[i].storage, (*initial)[i].storage) << before.states[i].name;
  }

  const auto want = RunCalls(before, calls), got = RunCalls(after, calls);
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_GE(Sqnr(Values(want[i]), Values(got[i])), 31) << "call " << i;  // measured 32.2 and more
    EXPECT_GE(SameChoice(want[i], got[i]), 0.85) << "call " << i;
  }
  // The last call alone, on the initial state, gives something else: the same else as in float.
  const auto alone = RunCalls(after, {calls.back()}), alone_float = RunCalls(before, {calls.back()});
  EXPECT_LT(Sqnr(Values(want.back()), Values(alone[0])), 15);
  EXPECT_GE(Sqnr(Values(alone_float[0]), Values(alone[0])), 20);
}

INSTANTIATE_TEST_SUITE_P(Llamas, StaticInt8States,
                         ::testing::Values("llama_tiny_index_put", "llama_tiny_index_copy", "llama_tiny_slice_copy", "llama_tiny_aten_copy",
                                           "llama_tiny_decode_static", "hf_llama_staticcache"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace dovetail
