// The schemes for fixed-point hardware on exported models: accuracy, states, and that what no backend takes runs on the cpu with the same numbers.
#include <gtest/gtest.h>

#include "backends/xnnpack/delegate/delegate.h"
#include "compile/compile.h"
#include "compile/partition.h"
#include "dovetail/program.h"
#include "ir/verifier.h"
#include "kernels/kernels.h"
#include "models/calibrated.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

using namespace samples;

QuantizeReport QuantizeWith(Module& module, const std::vector<Call>& calls, std::string_view scheme, std::vector<std::string> keep_float = {}) {
  QuantizeOptions options;
  options.scheme = FindScheme(scheme);
  options.keep_float = std::move(keep_float);
  return samples::QuantizeWith(module, calls, std::move(options));
}

struct Scheme4 {
  const char* name;
  double llama, digits;  // dB
};

class FixedPointModels : public ::testing::TestWithParam<Scheme4> {};

TEST_P(FixedPointModels, DigitsKeepTheirAnswers) {
  const Module before = CoreOf("digits_cnn_trained");
  Module after = CoreOf("digits_cnn_trained");
  const std::vector<Call> calls = RecordedCalls("digits_cnn_trained");
  ASSERT_EQ(calls.size(), 1u);
  const QuantizeReport report = QuantizeWith(after, {{FirstRows(calls[0][0], 64)}}, GetParam().name);
  EXPECT_EQ(report.layers.size(), 5u);
  for (const LayerReport& l : report.layers) EXPECT_NE(l.became, "") << l.path << ": " << l.reason;
  EXPECT_EQ(CountOp(after, OpId::kQuantize), 1u) << Print(after);
  EXPECT_EQ(CountOp(after, OpId::kDequantize), 1u) << Print(after);
  const auto want = RunCalls(before, calls), got = RunCalls(after, calls);
  const double sqnr = Sqnr(Values(want[0]), Values(got[0]));
  RecordProperty("sqnr", std::to_string(sqnr));
  std::printf("digits_cnn_trained %s: %.1f dB\n", GetParam().name, sqnr);
  EXPECT_GE(sqnr, GetParam().digits);
  EXPECT_GE(SameChoice(want[0], got[0]), 0.97);
}

bool OnlyDequantized(const Graph& g, const std::vector<NodeId>& users) {
  return std::all_of(users.begin(), users.end(), [&](NodeId u) { return g.node(u).op == OpId::kDequantize; });
}
// Logits, or what the linear that makes them reads.
bool MayBeWide(const Graph& g, const std::vector<std::vector<NodeId>>& users, const Node& n, ValueId v) {
  if (n.op != OpId::kRequantize) return OnlyDequantized(g, users[v]);
  return std::all_of(users[v].begin(), users[v].end(), [&](NodeId u) { return OnlyDequantized(g, users[g.node(u).results[0]]); });
}

// Every f32 value that a node in fixed point reads or makes has parameters; logits, and what their linear reads, have 16 bits in any scheme.
void ExpectFixedPoint(const Module& module, DType dtype) {
  const Graph& g = *module.graphs[0];
  const std::vector<std::vector<NodeId>> users = g.Users();
  for (NodeId id : g.order) {
    const Node& n = g.node(id);
    for (ValueId v : n.results) {
      const bool wide = g.type(v).dtype == DType::kU16 && MayBeWide(g, users, n, v);
      EXPECT_TRUE(!g.type(v).per_tensor() || g.type(v).dtype == dtype || wide) << DescribeNode(g, n);
    }
    switch (n.op) {
      case OpId::kMatmul:
      case OpId::kAdd:
      case OpId::kMul:
      case OpId::kRmsNorm:
      case OpId::kSoftmax:
      case OpId::kSigmoid:
      case OpId::kQuantizedLinear:
        EXPECT_TRUE(g.type(n.results[0]).dtype != dtype || g.type(n.operands[0]).per_tensor()) << DescribeNode(g, n) << Print(module);
        break;
      case OpId::kAttention:
      case OpId::kRope:
      case OpId::kSiluMul:
      case OpId::kLinear: ADD_FAILURE() << DescribeNode(g, n); break;
      default: break;
    }
  }
  for (const State& s : module.states)
    if (IsFloat(s.type.dtype)) ADD_FAILURE() << s.name << " is " << s.type.ToString();
}

TEST_P(FixedPointModels, LlamaCallsSeeEarlierWrites) {
  const DType dtype = FindScheme(GetParam().name)->activation;
  for (const std::string model :
       {"llama_tiny_index_put", "llama_tiny_index_copy", "llama_tiny_slice_copy", "llama_tiny_decode_static", "hf_llama_staticcache"}) {
    const Module before = CoreOf(model);
    Module after = CoreOf(model);
    const std::vector<Call> calls = RecordedCalls(model);
    ASSERT_GE(calls.size(), 3u);
    const QuantizeReport report = QuantizeWith(after, calls, GetParam().name);
    for (const LayerReport& l : report.layers) EXPECT_NE(l.became, "") << l.path << ": " << l.reason;
    EXPECT_TRUE(report.warnings.empty()) << report.warnings[0];
    ExpectFixedPoint(after, dtype);
    EXPECT_EQ(CollectStates(after).written, CollectStates(before).written);
    const auto want = RunCalls(before, calls), got = RunCalls(after, calls);
    double worst = INFINITY;
    for (size_t i = 0; i < want.size(); ++i) worst = std::min(worst, Sqnr(Values(want[i]), Values(got[i])));
    std::printf("%s %s: %.1f dB in the worst of %zu calls\n", model.c_str(), GetParam().name, worst, want.size());
    EXPECT_GE(worst, GetParam().llama) << model;
    // The last call alone, on the initial state, gives something else: the same else as in float.
    const auto alone = RunCalls(after, {calls.back()}), alone_float = RunCalls(before, {calls.back()});
    EXPECT_LT(Sqnr(Values(want.back()), Values(alone[0])), 15) << model;
    EXPECT_GE(Sqnr(Values(alone_float[0]), Values(alone[0])), GetParam().llama - 6) << model;
  }
}

INSTANTIATE_TEST_SUITE_P(Schemes, FixedPointModels,
                         ::testing::Values(Scheme4{"qnn-8a8w", 28, 35}, Scheme4{"qnn-16a8w", 38, 42}, Scheme4{"qnn-16a4w", 13, 17}),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// After partitioning without any backend the operators are spelled out; the meaning stays to the bit. The optimized kernels give nearly the same.
TEST(FixedPoint, SpelledOutItIsTheSame) {
  for (const std::string scheme : {"qnn-8a8w", "qnn-16a4w"})
    for (const std::string model : {"digits_cnn_trained", "llama_tiny_index_put"}) {
      Module module = CoreOf(model);
      std::vector<Call> calls = RecordedCalls(model);
      if (model == "digits_cnn_trained") calls = {{FirstRows(calls[0][0], 8)}};
      QuantizeWith(module, calls, scheme);
      const auto want = RunCalls(module, calls);
      ASSERT_TRUE(Partition(module, {}).ok());
      const Status s = RunPass(*FindPass("expand_quantized"), module);
      ASSERT_TRUE(s.ok()) << s.ToString();
      for (NodeId id : module.graphs[0]->order) {
        const Node& n = module.graphs[0]->node(id);
        for (ValueId v : n.operands)
          EXPECT_TRUE(v == kNone || ComputesOnIntegers(n.op) || !module.graphs[0]->type(v).per_tensor()) << DescribeNode(*module.graphs[0], n);
      }
      // The cache is written in place: it is not made floats and back.
      for (NodeId id : module.graphs[0]->order)
        if (const Node& n = module.graphs[0]->node(id); n.op == OpId::kIndexPut) {
          EXPECT_TRUE(module.graphs[0]->type(n.operands[0]).per_tensor());
        }
      const auto got = RunCalls(module, calls), fast = RunCalls(module, calls, {nullptr, FindKernel, FindScratch, nullptr});
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_EQ(Values(want[i]), Values(got[i])) << model << " call " << i;
        EXPECT_GE(Sqnr(Values(want[i]), Values(fast[i])), 25) << scheme << " " << model << " call " << i;
      }
    }
}

// The first output of each call of a compiled program.
Result<std::vector<OwnedTensor>> RunCompiled(const std::string& model, const std::vector<Call>& calls, CompileOptions options) {
  const TempFolder folder;
  for (size_t i = 0; i < calls.size(); ++i) {
    std::vector<std::pair<std::string, OwnedTensor>> inputs;
    for (size_t k = 0; k < calls[i].size(); ++k) inputs.emplace_back(StrCat("input_", k), calls[i][k]);
    folder.Write(StrCat(100 + i, ".npz"), inputs);
  }
  if (options.quantize.scheme->activations != Activations::kHalf) options.quantize.calibration = {folder.path()};
  const std::string pte = folder.path() + "/program.pte";
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const CompileReport report, CompileFile(StrCat("tests/fixtures/", model, ".pt2"), pte, options));
  DT_ASSIGN_OR_RETURN(const auto program, Program::Load(pte));
  static const DelegateEntry delegates[] = {kXnnpackDelegate};
  InstanceOptions instance_options;
  instance_options.delegates = delegates;
  DT_ASSIGN_OR_RETURN(const auto instance, program->CreateInstance(instance_options));
  DT_ASSIGN_OR_RETURN(Method* method, instance->LoadMethod("forward"));
  std::vector<OwnedTensor> outputs;
  for (const Call& call : calls) {
    std::vector<TensorView> views;
    for (const OwnedTensor& t : call) views.push_back(t.view());
    DT_RETURN_IF_ERROR(method->Execute(views));
    outputs.push_back(OwnedTensor::CopyOf(method->outputs()[0]));
  }
  return outputs;
}

TEST(FixedPoint, CompiledProgramsFollowTheInterpreter) {
  for (const std::string model : {"llama_tiny_index_put", "llama_tiny_decode_static"})
    for (const auto& [scheme, least] : {std::pair("qnn-8a8w", 28.0), std::pair("qnn-16a8w", 55.0), std::pair("qnn-16a4w", 55.0), std::pair("qnn-fp16", 80.0)})
      for (const bool mixed : {false, true}) {
        const std::vector<Call> calls = RecordedCalls(model);
        CompileOptions options;
        options.quantize.scheme = FindScheme(scheme);
        // Floating layers for XNNPACK, on a cache in integers and one in float.
        if (mixed) options.quantize.keep_float = {"layers.0.*", "*v_cache"};
        else options.backends = {"cpu"};
        Module module = CoreOf(model);
        QuantizeOptions quantize;
        quantize.scheme = options.quantize.scheme;
        quantize.keep_float = options.quantize.keep_float;
        samples::QuantizeWith(module, calls, quantize);
        const auto got = RunCompiled(model, calls, options);
        ASSERT_TRUE(got.ok()) << got.status().ToString();
        const auto want = RunCalls(module, calls);
        for (size_t i = 0; i < want.size(); ++i) {
          const double sqnr = Sqnr(Values(want[i]), Values((*got)[i]));
          EXPECT_GE(sqnr, least) << model << " " << scheme << " mixed " << mixed << " call " << i;
        }
      }
}

TEST(FixedPoint, TwoPromptsDiffer) {
  const std::string model = "llama_tiny_index_put";
  Module module = CoreOf(model);
  std::vector<Call> calls = RecordedCalls(model);
  QuantizeWith(module, calls, "qnn-16a8w");
  const auto first = RunCalls(module, calls);
  // Other tokens in the first call, the same ones after it.
  for (OwnedTensor& t : calls[0])
    if (t.type.dtype == DType::kI64 && t.type.rank() == 2)
      for (int64_t i = 0; i < t.view().numel(); ++i) t.view().as<int64_t>()[i] = (t.view().as<int64_t>()[i] + 7) % 32;
  const auto second = RunCalls(module, calls);
  EXPECT_LT(Sqnr(Values(first.back()), Values(second.back())), 40);
}

}  // namespace
}  // namespace dovetail
