// Profiles of compiled models: shapes that are inferred for nodes, events that lie inside each other, and work that agrees with the
// compiler's.
#include <gtest/gtest.h>

#include <filesystem>

#include "backends/xnnpack/delegate/delegate.h"
#include "backends/xnnpack/delegate/node_shapes.h"
#include "compile/compile.h"
#include "dovetail/program.h"
#include "format/pte_reader.h"
#include "format/xnnpack_blob.h"
#include "quant/scheme.h"
#include "runtime/profiler.h"

namespace dovetail {
namespace {

struct Case {
  const char* fixture;
  const char* scheme = "none";
  bool stock = false;
};

struct Compiled {
  std::unique_ptr<Program> program;
  CompileReport report;
};

Result<Compiled> Compile(const Case& c) {
  CompileOptions options;
  options.stock_runtime = c.stock;
  options.quantize.scheme = FindScheme(c.scheme);  // null: none
  const std::string pte = StrCat(::testing::TempDir(), "profile_", c.fixture, ".pte");
  Compiled compiled;
  DT_ASSIGN_OR_RETURN(compiled.report, CompileFile(StrCat("tests/fixtures/", c.fixture, ".pt2"), pte, options));
  DT_ASSIGN_OR_RETURN(compiled.program, Program::Load(pte));
  std::filesystem::remove(pte);
  return compiled;
}

class Profile : public ::testing::TestWithParam<Case> {};

// The compiler wrote every value's bounds into the blob.
TEST_P(Profile, ShapesAtTheBoundsAreTheCompilers) {
  auto compiled = Compile(GetParam());
  ASSERT_TRUE(compiled.ok()) << compiled.status().ToString();
  size_t values = 0;
  for (const pte::ExecutionPlan* plan : *compiled->program->view().program().execution_plan())
    for (const pte::BackendDelegate* d : *plan->delegates()) {
      const auto blob = ReadXnnpackBlob(compiled->program->view().DelegateData(*d), "delegate");
      ASSERT_TRUE(blob.ok()) << blob.status().ToString();
      NodeShapes shapes(*blob->graph);
      shapes.Infer([](uint32_t) { return std::span<const size_t>(); });
      for (const xn::XNode* node : *blob->graph->xnodes()) {
        const uint32_t id = IoOf(*node).output;
        const xn::XNNTensorValue& t = shapes.tensor(id);
        EXPECT_EQ(shapes.dims(id), XnnDims(t.dims()->begin(), t.dims()->end())) << xn::EnumNameXNodeUnion(node->xnode_union_type());
        ++values;
      }
    }
  EXPECT_GT(values, 0u);
}

TEST_P(Profile, EventsLieInsideEachOtherAndCoverTheMethod) {
  auto compiled = Compile(GetParam());
  ASSERT_TRUE(compiled.ok()) << compiled.status().ToString();
  static const DelegateEntry delegates[] = {kXnnpackDelegate};
  Profiler profiler(1 << 14);
  InstanceOptions options;
  options.delegates = delegates;
  options.threads = 2;
  options.profiler = &profiler;
  auto instance = compiled->program->CreateInstance(options);
  ASSERT_TRUE(instance.ok());
  auto method = (*instance)->LoadMethod("forward");
  ASSERT_TRUE(method.ok()) << method.status().ToString();
  // Zeros of the largest sizes are inputs of every model here.
  const MethodInfo& info = (*method)->info();
  std::vector<std::vector<std::byte>> data;
  std::vector<TensorView> inputs;
  for (const TensorInfo& t : info.inputs) {
    TensorView view(t.type.dtype, t.max_sizes, nullptr);
    view.data = data.emplace_back(view.nbytes() + 16).data();
    inputs.push_back(view);
  }
  ASSERT_TRUE((*method)->Execute(inputs).ok());
  profiler.Clear();
  profiler.set_describing(true);
  const Status s = (*method)->Execute(inputs);
  ASSERT_TRUE(s.ok()) << s.ToString();

  const auto events = profiler.events();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(profiler.dropped(), 0u);
  const Profiler::Event& call = events.back();
  EXPECT_EQ(call.instruction, Profiler::kWholeCall);
  ASSERT_EQ(profiler.details().size(), events.size() - 1);
  std::vector<bool> seen(info.instructions);
  int64_t last_end = call.start_ns;
  size_t nodes = 0, first_node = 0;
  uint64_t in_nodes = 0, of_layers = 0;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Profiler::Event& e = events[i];
    const Profiler::Detail& d = profiler.details()[i];
    EXPECT_LE(e.start_ns, e.end_ns);
    ASSERT_LT(e.instruction, info.instructions);
    if (e.node != Profiler::kNoNode) {
      if (nodes++ == 0) first_node = i;
      else EXPECT_TRUE(e.start_ns >= events[i - 1].end_ns && e.node > events[i - 1].node);
      EXPECT_FALSE(d.op.empty() || d.inputs.empty() || d.outputs.empty());
      in_nodes += d.macs;
      // Means are products with a row of ones, and attention is none of the compiler's layers.
      const bool mean = e.name.starts_with("FullyConnected") && d.outputs[0].ends_with(",1]");
      if (!mean && !e.name.starts_with("BatchMatrixMultiply")) of_layers += d.macs;
      continue;
    }
    seen[e.instruction] = true;
    EXPECT_GE(e.start_ns, last_end);
    EXPECT_LE(e.end_ns, call.end_ns);
    last_end = e.end_ns;
    EXPECT_EQ(nodes > 0, e.name == "XnnpackBackend") << e.name;
    for (size_t k = first_node; nodes > 0 && k < i; ++k) {
      EXPECT_EQ(events[k].instruction, e.instruction);
      EXPECT_TRUE(events[k].start_ns >= e.start_ns && events[k].end_ns <= e.end_ns);
    }
    if (nodes > 0) {
      EXPECT_EQ(d.macs, in_nodes) << "instruction " << e.instruction;
    }
    nodes = in_nodes = 0;
  }
  for (size_t i = 0; i < seen.size(); ++i) EXPECT_TRUE(seen[i]) << "instruction " << i;
  EXPECT_EQ(of_layers, compiled->report.macs_delegated);
}

std::string NameOf(const ::testing::TestParamInfo<Case>& c) {
  std::string name = StrCat(c.param.fixture, "_", c.param.scheme, c.param.stock ? "_stock" : "");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Models, Profile,
                         ::testing::Values(Case{"llama_tiny_index_put"}, Case{"llama_tiny_index_put", "int8-dynamic"},
                                           Case{"llama_tiny_index_put", "int4"}, Case{"llama_tiny_index_put", "none", true},
                                           Case{"hf_llama_staticcache"}, Case{"digits_cnn_trained"},
                                           Case{"digits_cnn_trained", "int8-dynamic"}, Case{"silero_vad_stateful"}),
                         NameOf);

}  // namespace
}  // namespace dovetail
