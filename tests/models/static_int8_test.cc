// The scheme int8 on exported models: accuracy, and states through calibration and after it.
#include <gtest/gtest.h>

#include "compile/partition.h"
#include "ir/verifier.h"
#include "kernels/kernels.h"
#include "models/calibrated.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

using namespace samples;

QuantizeReport QuantizeWith(Module& module, const std::vector<Call>& calls) {
  QuantizeOptions options;
  options.scheme = FindScheme("int8");
  return samples::QuantizeWith(module, calls, std::move(options));
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
