// Prefill, then decode, of one program in one running instance on Qualcomm's library, beside the interpreter.
#include <cstring>
#include <filesystem>

#include "backends/qnn/delegate/delegate.h"
#include "compile/compile.h"
#include "ir/interpreter.h"
#include "models/reference.h"
#include "qnn/harness.h"

namespace dovetail {
namespace {

constexpr char kModel[] = "tests/fixtures/llama_tiny_index_put.pt2", kCache[] = "layers.1.self_attn.v_cache";
constexpr int64_t kPrompt = 6;

std::vector<OwnedTensor> Call(std::vector<int64_t> tokens, int64_t position) {
  const int64_t n = static_cast<int64_t>(tokens.size());
  std::vector<OwnedTensor> inputs = {OwnedTensor::Make(TensorType(DType::kI64, {Dim(1), Dim(n)})), OwnedTensor::Make(TensorType(DType::kI64, {Dim(n)}))};
  for (int64_t i = 0; i < n; ++i) {
    inputs[0].view().as<int64_t>()[i] = tokens[static_cast<size_t>(i)];
    inputs[1].view().as<int64_t>()[i] = position + i;
  }
  return inputs;
}

class QnnMethods : public testing::OnQnn {
 protected:
  void SetUp() override {
    OnQnn::SetUp();
    if (IsSkipped()) return;
    CompileOptions options;
    options.backends = {"qnn", "cpu"};
    options.qnn_soc = testing::kQnnTestSoc;
    options.qnn_separate_weights = true;
    options.methods = {{"prefill", kModel}};
    options.input_shapes = {{"", "tokens", {1, 1}}, {"", "input_pos", {1}}, {"prefill", "tokens", {1, kPrompt}}, {"prefill", "input_pos", {kPrompt}}};
    options.quantize.scheme = FindScheme("qnn-fp16");
    auto module = ImportAndOptimize(kModel, options);
    ASSERT_TRUE(module.ok()) << module.status().ToString();
    module_ = std::move(*module);
    const std::string file = (std::filesystem::path(::testing::TempDir()) / "qnn_methods.pte").string();
    const auto report = CompileFile(kModel, file, options);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->partition.delegate_calls, 2u) << "each method is one delegate call";
    auto program = Program::Load(file);
    ASSERT_TRUE(program.ok()) << program.status().ToString();
    program_ = std::move(*program);
  }
  std::unique_ptr<Instance> Start() {
    static const DelegateEntry delegates[] = {kQnnDelegate};
    auto instance = program_->CreateInstance({.threads = 1, .delegates = delegates});
    EXPECT_TRUE(instance.ok()) << instance.status().ToString();
    return std::move(*instance);
  }
  OwnedTensor Run(Instance& instance, const char* name, const std::vector<OwnedTensor>& inputs) {
    const auto method = instance.LoadMethod(name);
    EXPECT_TRUE(method.ok()) << method.status().ToString();
    if (!method.ok()) return {};
    const TensorView views[] = {inputs[0].view(), inputs[1].view()};
    const Status ran = (*method)->Execute(views);
    EXPECT_TRUE(ran.ok()) << ran.ToString();
    return OwnedTensor::CopyOf((*method)->outputs()[0]);
  }
  OwnedTensor Interpreted(const char* name, const std::vector<OwnedTensor>& inputs, StateStore& states) {
    const auto outputs = Interpret(module_, *module_.FindGraph(name), inputs, states);
    EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
    return (*outputs)[0];
  }

  Module module_;
  std::unique_ptr<Program> program_;
};

TEST_F(QnnMethods, ShareTheCache) {
  const std::unique_ptr<Instance> instance = Start(), fresh = Start();
  ASSERT_EQ(instance->states().size(), 4u) << "two methods, one set of caches";
  StateStore states = InitStates(module_).value(), fresh_states = InitStates(module_).value();
  const auto prompt = Call({3, 17, 42, 8, 60, 25}, 0);
  EXPECT_LE(*testing::Difference(Run(*instance, "prefill", prompt), Interpreted("prefill", prompt, states)), 5e-3);
  OwnedTensor cache = OwnedTensor::CopyOf(*instance->State(kCache));
  int64_t position = kPrompt;
  for (const int64_t token : {11, 29, 5}) {
    SCOPED_TRACE(token);
    const auto call = Call({token}, position);
    const OwnedTensor want = Interpreted("forward", call, states), got = Run(*instance, "forward", call);
    EXPECT_LE(*testing::Difference(got, want), 5e-3);
    // Without the prompt in the cache the same token gives something else.
    const OwnedTensor alone = Run(*fresh, "forward", call);
    EXPECT_LE(*testing::Difference(alone, Interpreted("forward", call, fresh_states)), 5e-3);
    if (position == kPrompt) {
      EXPECT_GE(*testing::Difference(alone, want), 0.05);
    }
    // One row of each head is new.
    const OwnedTensor after = OwnedTensor::CopyOf(*instance->State(kCache));
    const TensorView view = after.view();
    const int64_t width = view.sizes[3], rows = view.sizes[2];
    for (int64_t row = 0; row < view.sizes[1] * rows; ++row) {
      const bool same = std::memcmp(view.as<float>() + row * width, cache.view().as<float>() + row * width, static_cast<size_t>(width) * sizeof(float)) == 0;
      EXPECT_EQ(same, row % rows != position) << row;
    }
    cache = after;
    ++position;
  }
  // From decode back to prefill: rows are written over.
  const auto again = Call({51, 9, 33, 2, 14, 47}, 2);
  EXPECT_LE(*testing::Difference(Run(*instance, "prefill", again), Interpreted("prefill", again, states)), 5e-3);
}

}  // namespace
}  // namespace dovetail
