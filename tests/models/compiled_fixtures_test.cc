// Every small exported model, compiled for each runtime and run from its .pte, gives what PyTorch gave: all outputs of all steps, and
// the states that the reference interpreter has after them.
//
//   compiled_fixtures_test NAME.pt2 ...
// compares these files with NAME.ref.safetensors beside them instead, and prints one line for each.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "backends/xnnpack/delegate/delegate.h"
#include "compile/compile.h"
#include "dovetail/program.h"
#include "import/import.h"
#include "models/reference.h"

namespace dovetail {
namespace {

constexpr std::string_view kPt2 = ".pt2", kCore = ".core";

Result<testing::Tensors> ReadReferenceOf(std::string_view path) {
  for (std::string_view ending : {kPt2, kCore})
    if (path.ends_with(ending)) path.remove_suffix(ending.size());
  return testing::ReadSafetensors(StrCat(path, ".ref.safetensors"));
}

OwnedTensor Copy(const TensorView& t) {
  OwnedTensor copy = OwnedTensor::Make(t.type());
  if (t.nbytes() > 0) std::memcpy(copy.view().data, t.data, t.nbytes());
  return copy;
}

// A state as floats, however it is stored.
Result<OwnedTensor> StateOf(Instance& instance, const std::string& name, DType dtype) {
  DT_ASSIGN_OR_RETURN(const TensorView state, instance.State(name));
  if (state.dtype == dtype) return Copy(state);
  DT_ASSIGN_OR_RETURN(const TensorView scale, instance.State(name + ".scale"));
  OwnedTensor floats = OwnedTensor::Make(TensorType(dtype, state.type().shape));
  const TensorView in[] = {state, scale}, out = floats.view();
  DT_RETURN_IF_ERROR(GetOp(OpId::kDequantizeRows).reference({in, {}, std::span(&out, 1), nullptr, {}}));
  return floats;
}

struct Outcome {
  testing::Comparison comparison;
  double worst_state = 0;
  size_t delegates = 0;
};

Result<Outcome> CompileAndCompare(const std::string& path, const CompileOptions& options) {
  const std::string pte = StrCat(::testing::TempDir(), std::filesystem::path(path).stem().string(), options.stock_runtime ? ".stock" : "", ".pte");
  DT_ASSIGN_OR_RETURN(const CompileReport report, CompileFile(path, pte, options));
  static const DelegateEntry delegates[] = {kXnnpackDelegate};
  DT_ASSIGN_OR_RETURN(const auto program, Program::Load(pte));
  std::filesystem::remove(pte);
  InstanceOptions instance_options;
  instance_options.delegates = delegates;
  instance_options.threads = 2;
  DT_ASSIGN_OR_RETURN(const auto instance, program->CreateInstance(instance_options));
  DT_ASSIGN_OR_RETURN(Method * method, instance->LoadMethod("forward"));
  DT_ASSIGN_OR_RETURN(const testing::Tensors reference, ReadReferenceOf(path));
  std::vector<std::string> names;
  for (const TensorInfo& input : method->info().inputs) names.push_back(input.name);
  Outcome outcome;
  for (const DelegateInfo& d : method->info().delegates) outcome.delegates += d.calls;
  DT_ASSIGN_OR_RETURN(outcome.comparison,
                      testing::CompareWithReference(reference, names, [&](const std::vector<OwnedTensor>& inputs) -> Result<testing::Tensors> {
                        std::vector<TensorView> views;
                        for (const OwnedTensor& t : inputs) views.push_back(t.view());
                        DT_RETURN_IF_ERROR(method->Execute(views));
                        testing::Tensors outputs;
                        for (size_t i = 0; i < method->outputs().size(); ++i) outputs.emplace(method->info().outputs[i].name, Copy(method->outputs()[i]));
                        return outputs;
                      }));
  DT_ASSIGN_OR_RETURN(const Module module, ImportPt2(path));
  DT_ASSIGN_OR_RETURN(const testing::Comparison interpreted, testing::CompareWithReference(module, reference));
  for (size_t s = 0; s < module.states.size(); ++s) {
    DT_ASSIGN_OR_RETURN(const OwnedTensor state, StateOf(*instance, module.states[s].name, module.states[s].type.dtype));
    DT_ASSIGN_OR_RETURN(const double difference, testing::Difference(state, interpreted.states[s]));
    outcome.worst_state = std::max(outcome.worst_state, difference);
  }
  return outcome;
}

std::vector<std::string> Fixtures() {
  std::vector<std::string> files;
  for (const char* folder : {"tests/fixtures", "tests/fixtures/import"})
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == kPt2 && !entry.path().stem().string().starts_with("refused_")) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

class CompiledFixtures : public ::testing::TestWithParam<std::string> {};

void Check(const std::string& path, bool stock) {
  CompileOptions options;
  options.stock_runtime = stock;
  const auto outcome = CompileAndCompare(path, options);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_GT((*outcome).comparison.steps, 0u);
  EXPECT_LE((*outcome).comparison.worst, 1e-4) << (*outcome).comparison.worst_name;
  EXPECT_LE((*outcome).worst_state, 1e-4);
}
TEST_P(CompiledFixtures, ForDovetail) { Check(GetParam(), false); }
TEST_P(CompiledFixtures, ForExecuTorch) { Check(GetParam(), true); }

TEST_P(CompiledFixtures, OnTheCpuBackendAlone) {
  CompileOptions options;
  options.backends = {"cpu"};
  const auto outcome = CompileAndCompare(GetParam(), options);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_EQ((*outcome).delegates, 0u);
  EXPECT_LE((*outcome).comparison.worst, 1e-4) << (*outcome).comparison.worst_name;
  EXPECT_LE((*outcome).worst_state, 1e-4);
}

// With their caches as int8, models of language still say nearly the same.
TEST_P(CompiledFixtures, WithInt8States) {
  const auto module = ImportPt2(GetParam());
  if (!module.ok() || (*module).states.empty() || GetParam().find("llama") == std::string::npos) GTEST_SKIP() << "no cache";
  for (const bool stock : {false, true}) {
    CompileOptions options;
    options.stock_runtime = stock;
    options.quantize.int8_states = true;
    const auto outcome = CompileAndCompare(GetParam(), options);
    ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
    EXPECT_LE((*outcome).comparison.worst, 1e-2) << (*outcome).comparison.worst_name;
    EXPECT_GT((*outcome).worst_state, 0) << "nothing was quantized";
    EXPECT_LE((*outcome).worst_state, 1e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CompiledFixtures, ::testing::ValuesIn(Fixtures()), [](const auto& info) {
  std::string name = info.param.substr(std::string("tests/fixtures/").size());
  for (char& c : name)
    if (c == '.' || c == '/') c = '_';
  return name;
});

int CompareFiles(int count, char** paths) {
  int failed = 0;
  for (int i = 0; i < count; ++i) {
    for (const bool stock : {false, true}) {
      CompileOptions options;
      options.stock_runtime = stock;
      const auto outcome = CompileAndCompare(paths[i], options);
      const bool good = outcome.ok() && (*outcome).comparison.worst <= 1e-4 && (*outcome).worst_state <= 1e-4 && (*outcome).comparison.steps > 0;
      failed += !good;
      if (outcome.ok())
        std::printf("%s %s%s: %zu steps, worst %g at %s, states %g, %zu delegate calls\n", good ? "ok  " : "FAIL", paths[i], stock ? " (stock)" : "",
                    (*outcome).comparison.steps, (*outcome).comparison.worst, (*outcome).comparison.worst_name.c_str(), (*outcome).worst_state,
                    (*outcome).delegates);
      else
        std::printf("FAIL %s%s: %s\n", paths[i], stock ? " (stock)" : "", outcome.status().ToString().c_str());
    }
  }
  return failed > 0;
}

}  // namespace
}  // namespace dovetail

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return argc > 1 ? dovetail::CompareFiles(argc - 1, argv + 1) : RUN_ALL_TESTS();
}
