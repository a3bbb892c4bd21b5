// Each pass keeps what the small exported models compute: the interpreter's results and states over all recorded calls, before and after
// every pass of both pipelines (--runtime dovetail and executorch), partitioned or not. And the fused operators are really there.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "backends/xnnpack/backend.h"
#include "compile/lower_states.h"
#include "compile/partition.h"
#include "import/import.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "models/reference.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

constexpr double kTolerance = 1e-5;  // of the range of the tensor

struct Fixture {
  const char* file;  // in tests/fixtures, without ".pt2"
  const char* reference;
  size_t layers;  // of a Llama with two query heads for each key head; 0: another model
};
constexpr Fixture kLlamas[] = {
    {"llama_tiny_index_put", "llama_tiny_index_put", 2},
    {"llama_tiny_index_put.core", "llama_tiny_index_put", 2},
    {"llama_tiny_index_copy", "llama_tiny_index_copy", 2},
    {"llama_tiny_slice_copy", "llama_tiny_slice_copy", 2},
    {"llama_tiny_aten_copy", "llama_tiny_aten_copy", 2},
    {"llama_tiny_decode_static", "llama_tiny_decode_static", 2},
    {"hf_llama_staticcache", "hf_llama_staticcache", 2},
};
constexpr Fixture kOthers[] = {
    {"llama_complex_rope", "llama_complex_rope", 0},
    {"sig_buffer_mutation", "sig_buffer_mutation", 0},
    {"sig_constants", "sig_constants", 0},
    {"sig_pytree_io", "sig_pytree_io", 0},
    {"sig_user_input_mutation", "sig_user_input_mutation", 0},
    {"silero_vad_stateful", "silero_vad_stateful", 0},
    {"digits_cnn_trained", "digits_cnn_trained", 0},
    {"digits_cnn_trained.core", "digits_cnn_trained", 0},
};

// Inputs of each recorded call.
using Calls = std::vector<std::vector<OwnedTensor>>;
Calls RecordedCalls(const testing::Tensors& reference) {
  Calls calls;
  for (size_t step = 0;; ++step) {
    std::vector<OwnedTensor> inputs;
    for (size_t leaf = 0; leaf < 64; ++leaf)
      if (auto it = reference.find(StrCat("in.", step, ".", leaf)); it != reference.end()) inputs.push_back(it->second);
    if (inputs.empty()) return calls;
    calls.push_back(std::move(inputs));
  }
}

// The outputs of all calls, then the states after the last.
Result<std::vector<OwnedTensor>> RunAll(const Module& module, const Calls& calls) {
  DT_ASSIGN_OR_RETURN(StateStore states, InitStates(module));
  std::vector<OwnedTensor> all;
  for (const auto& inputs : calls) {
    DT_ASSIGN_OR_RETURN(std::vector<OwnedTensor> outputs, Interpret(module, *module.graphs[0], inputs, states));
    for (OwnedTensor& t : outputs) all.push_back(std::move(t));
  }
  for (OwnedTensor& t : states) all.push_back(std::move(t));
  return all;
}

// The largest difference as a part of the range of `want`; infinite where types, NaNs, or the bytes of other dtypes than f32 differ.
double Difference(const OwnedTensor& got, const OwnedTensor& want) {
  if (got.type != want.type) return INFINITY;
  const TensorView a = got.view(), b = want.view();
  if (want.type.dtype != DType::kF32) return std::equal(a.as<std::byte>(), a.as<std::byte>() + a.nbytes(), b.as<std::byte>()) ? 0 : INFINITY;
  double low = 0, high = 0, worst = 0;
  for (int64_t i = 0; i < b.numel(); ++i) {
    const double x = a.as<float>()[i], y = b.as<float>()[i];
    if (std::isnan(x) != std::isnan(y)) return INFINITY;
    if (std::isnan(x) || x == y) continue;
    worst = std::max(worst, std::abs(x - y));
  }
  for (int64_t i = 0; i < b.numel(); ++i) {
    low = std::min(low, static_cast<double>(b.as<float>()[i]));
    high = std::max(high, static_cast<double>(b.as<float>()[i]));
  }
  return worst == 0 ? 0 : worst / (high - low);
}

void CountOps(const Graph& graph, std::map<std::string, size_t, std::less<>>& counts) {
  for (NodeId id : graph.order) {
    const Node& n = graph.node(id);
    ++counts[std::string(GetOp(n.op).name)];
    if (n.region) CountOps(*n.region->body, counts);
  }
}

class PassEquivalence : public ::testing::TestWithParam<Fixture> {
 protected:
  void SetUp() override {
    auto module = ImportPt2(StrCat("tests/fixtures/", GetParam().file, ".pt2"));
    ASSERT_TRUE(module.ok()) << module.status().ToString();
    module_ = std::move(*module);
    auto reference = testing::ReadSafetensors(StrCat("tests/fixtures/", GetParam().reference, ".ref.safetensors"));
    ASSERT_TRUE(reference.ok()) << reference.status().ToString();
    calls_ = RecordedCalls(*reference);
    ASSERT_FALSE(calls_.empty());
    auto results = RunAll(module_, calls_);
    ASSERT_TRUE(results.ok()) << results.status().ToString();
    before_ = std::move(*results);
  }

  void ExpectSame(std::string_view after) {
    Status valid = Verify(module_);
    ASSERT_TRUE(valid.ok()) << after << ": " << valid.ToString();
    auto results = RunAll(module_, calls_);
    ASSERT_TRUE(results.ok()) << after << ": " << results.status().ToString();
    ASSERT_EQ(results->size(), before_.size()) << after;
    for (size_t i = 0; i < before_.size(); ++i) EXPECT_LE(Difference((*results)[i], before_[i]), kTolerance) << "tensor " << i << " after " << after;
  }

  // Runs a pass; results are compared only where it changed the graph.
  void Run(const Pass& pass) {
    const std::string text = Print(module_);
    Status status = RunPass(pass, module_);
    ASSERT_TRUE(status.ok()) << status.ToString();
    const std::string now = Print(module_);
    if (now != text) ExpectSame(pass.name);
    auto parsed = Parse(now);
    ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
    EXPECT_EQ(Print(*parsed), now);
  }
  void RunCore() {
    for (const Pass& pass : CorePasses()) ASSERT_NO_FATAL_FAILURE(Run(pass));
  }

  std::map<std::string, size_t, std::less<>> Counts() const {
    std::map<std::string, size_t, std::less<>> counts;
    CountOps(*module_.graphs[0], counts);
    return counts;
  }

  Module module_;
  Calls calls_;
  std::vector<OwnedTensor> before_;
};

class LlamaPasses : public PassEquivalence {};

TEST_P(PassEquivalence, CorePassesAndPartition) {
  ASSERT_NO_FATAL_FAILURE(RunCore());
  const Backend* backends[] = {&XnnpackBackend()};
  const auto before = Counts();
  auto report = Partition(module_, backends);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ExpectSame("partition");
  auto after = Counts();
  EXPECT_EQ(after["delegate"], report->delegate_calls);
  for (const auto& [op, count] : before)
    if (op != "const") {
      EXPECT_EQ(after[op], count) << op;  // moved, none lost or doubled
    }
  Status status = LowerStates(module_);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ExpectSame("lower_states");
}

TEST_P(PassEquivalence, StockPipeline) {
  ASSERT_NO_FATAL_FAILURE(RunCore());
  ASSERT_NO_FATAL_FAILURE(Run(*FindPass("additive_masks")));
  ASSERT_NO_FATAL_FAILURE(Run(*FindPass("decompose_for_stock")));
  auto counts = Counts();
  for (const char* op : {"rms_norm", "rope", "silu", "silu_mul", "attention", "matmul"}) EXPECT_EQ(counts[op], 0u) << op;
}

TEST_P(PassEquivalence, StockPipelineWithRegions) {
  ASSERT_NO_FATAL_FAILURE(RunCore());
  ASSERT_NO_FATAL_FAILURE(Run(*FindPass("additive_masks")));
  const Backend* backends[] = {&XnnpackBackend()};
  auto report = Partition(module_, backends);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  ExpectSame("partition");
  Status status = RunPass(*FindPass("decompose_for_stock"), module_);
  ASSERT_TRUE(status.ok()) << status.ToString();
  ExpectSame("decompose_for_stock");
}

// A pass on its own, on the graph as imported: none relies on another for its meaning.
TEST_P(PassEquivalence, EachPassAlone) {
  for (const Pass& pass : CorePasses()) {
    auto module = ImportPt2(StrCat("tests/fixtures/", GetParam().file, ".pt2"));
    ASSERT_TRUE(module.ok());
    module_ = std::move(*module);
    ASSERT_NO_FATAL_FAILURE(Run(pass));
  }
}

TEST_P(LlamaPasses, FusedOperatorsAreThere) {
  const size_t layers = GetParam().layers;
  ASSERT_NO_FATAL_FAILURE(RunCore());
  auto counts = Counts();
  EXPECT_EQ(counts["rms_norm"], 2 * layers + 1);
  EXPECT_EQ(counts["rope"], 2 * layers);
  EXPECT_EQ(counts["attention"], layers);
  EXPECT_EQ(counts["silu_mul"], layers);
  EXPECT_EQ(counts["linear"], 7 * layers + 1);
  EXPECT_EQ(counts["index_put"], 2 * layers);
  // Nothing is left of what was fused, nor of the mask and the repeated heads.
  for (const char* op : {"matmul", "bmm", "softmax", "silu", "sigmoid", "rsqrt", "pow", "mean", "neg", "where", "le", "ge", "eq", "any",
                         "logical_not", "expand"})
    EXPECT_EQ(counts[op], 0u) << op;
  const Graph& g = *module_.graphs[0];
  for (NodeId id : g.order) {
    const Node& n = g.node(id);
    if (n.op != OpId::kAttention) continue;
    EXPECT_EQ(GetOperand(n, "attn_mask"), kNone);
    EXPECT_NE(GetOperand(n, "positions"), kNone);
    EXPECT_EQ(g.type(n.operands[0]).shape[1], g.type(n.operands[1]).shape[1] * Dim(2));
    EXPECT_NE(g.producer_if(n.operands[1], OpId::kIndexPut), nullptr);  // the cache itself
    EXPECT_NE(g.producer_if(n.operands[2], OpId::kIndexPut), nullptr);
  }
}

TEST_P(LlamaPasses, StockPipelineLeavesOnlyMovesOutside) {
  ASSERT_NO_FATAL_FAILURE(RunCore());
  ASSERT_NO_FATAL_FAILURE(Run(*FindPass("additive_masks")));
  const Backend* backends[] = {&XnnpackBackend()};
  auto report = Partition(module_, backends, false);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  // Attention and all linears are in regions; outside is what moves data by index.
  for (NodeId id : module_.graphs[0]->order) {
    const OpId op = module_.graphs[0]->node(id).op;
    for (OpId inside : {OpId::kLinear, OpId::kBmm, OpId::kSoftmax, OpId::kAttention}) EXPECT_NE(op, inside) << GetOp(op).name;
  }
}

// Caches are updated in place: no copy of a whole one is left.
TEST_P(LlamaPasses, CachesAreUpdatedInPlace) {
  ASSERT_NO_FATAL_FAILURE(RunCore());
  const Backend* backends[] = {&XnnpackBackend()};
  auto report = Partition(module_, backends);
  ASSERT_TRUE(report.ok()) << report.status().ToString();
  Status status = LowerStates(module_);
  ASSERT_TRUE(status.ok()) << status.ToString();
  auto counts = Counts();
  EXPECT_EQ(counts["index_put_"], 2 * GetParam().layers);
  EXPECT_EQ(counts["index_put"], 0u);
  const Graph& g = *module_.graphs[0];
  for (NodeId id : g.order) {
    const Node& n = g.node(id);
    if (n.op == OpId::kClone) {
      EXPECT_LT(g.type(n.results[0]).rank(), 4u) << DescribeNode(g, n);
    }
  }
}

std::string NameOf(const ::testing::TestParamInfo<Fixture>& info) {
  std::string name = info.param.file;
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(Llamas, PassEquivalence, ::testing::ValuesIn(kLlamas), NameOf);
INSTANTIATE_TEST_SUITE_P(Others, PassEquivalence, ::testing::ValuesIn(kOthers), NameOf);
INSTANTIATE_TEST_SUITE_P(All, LlamaPasses, ::testing::ValuesIn(kLlamas), NameOf);

}  // namespace
}  // namespace dovetail
