// Models that were quantized in PyTorch, compiled and run from their .pte: what the interpreter gives for the same program.
//
//   quantized_compiled_test NAME.pt2 ...
// compares these files with NAME.ref.safetensors beside them instead, on each backend, and prints one line for each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "backends/xnnpack/delegate/delegate.h"
#include "compile/compile.h"
#include "dovetail/program.h"
#include "models/reference.h"

namespace dovetail {
namespace {

constexpr double kStep = 1.0 / 255;

OwnedTensor Copy(const TensorView& t) {
  OwnedTensor copy = OwnedTensor::Make(t.type());
  if (t.nbytes() > 0) std::memcpy(copy.view().data, t.data, t.nbytes());
  return copy;
}

struct Outcome {
  CompileReport report;
  testing::Comparison with_eager, interpreted;
};

Result<Outcome> CompileAndRun(const std::string& path, const CompileOptions& options) {
  Outcome outcome;
  const std::string name = std::filesystem::path(path).stem().string();
  const std::string pte = StrCat(::testing::TempDir(), name, options.backends.size() == 1 ? ".cpu" : "", ".pte");
  DT_ASSIGN_OR_RETURN(outcome.report, CompileFile(path, pte, options));
  static const DelegateEntry delegates[] = {kXnnpackDelegate};
  DT_ASSIGN_OR_RETURN(const auto program, Program::Load(pte));
  std::filesystem::remove(pte);
  InstanceOptions instance_options;
  instance_options.delegates = delegates;
  DT_ASSIGN_OR_RETURN(const auto instance, program->CreateInstance(instance_options));
  DT_ASSIGN_OR_RETURN(Method * method, instance->LoadMethod("forward"));
  std::string recording = path;
  for (const char* ending : {".pt2", ".core"})
    if (recording.ends_with(ending)) recording.resize(recording.size() - std::strlen(ending));
  DT_ASSIGN_OR_RETURN(const testing::Tensors reference, testing::ReadSafetensors(recording + ".ref.safetensors"));
  std::vector<std::string> names;
  for (const TensorInfo& input : method->info().inputs) names.push_back(input.name);
  const testing::StepFn run = [&](const std::vector<OwnedTensor>& inputs) -> Result<testing::Tensors> {
    std::vector<TensorView> views;
    for (const OwnedTensor& t : inputs) views.push_back(t.view());
    DT_RETURN_IF_ERROR(method->Execute(views));
    testing::Tensors outputs;
    for (size_t i = 0; i < method->outputs().size(); ++i) outputs.emplace(method->info().outputs[i].name, Copy(method->outputs()[i]));
    return outputs;
  };
  DT_ASSIGN_OR_RETURN(outcome.with_eager, testing::CompareWithReference(reference, names, run));
  DT_ASSIGN_OR_RETURN(const Module module, ImportAndOptimize(path, options));
  DT_ASSIGN_OR_RETURN(outcome.interpreted, testing::CompareWithReference(module, reference));
  return outcome;
}

struct Fixture {
  const char* name;
  double tolerance;  // of the difference from eager, beside the interpreter's
  size_t layers;
  friend void PrintTo(const Fixture& f, std::ostream* out) { *out << f.name; }
};
constexpr Fixture kFixtures[] = {
    {"pt2e_dynamic_shared", 1e-3, 7},
    {"pt2e_dynamic_duplicated", 1e-3, 7},
    {"ao_8da4w", 1e-3, 2},
    {"ao_8da4w_embedding", 1e-3, 2},
    {"ao_8da8w", 1e-3, 2},
    {"ao_int8_dynamic", 1e-3, 2},
    {"ao_int8_weight_only", 1e-5, 2},
    {"ao_intx4_weight_only", 1e-5, 2},
    {"ao_intx8_weight_only", 1e-5, 2},
    {"pt2e_static_per_channel", 2.1 * kStep, 5},
    {"pt2e_static_per_tensor", 2.1 * kStep, 5},
    {"pt2e_static_convolutions", 2.1 * kStep, 4},
    {"pt2e_static_conv1d", 2.1 * kStep, 2},
    {"pt2e_static_conv1d.core", 2.1 * kStep, 2},
    {"pt2e_static_cache", 2.1 * kStep, 4},
    {"pt2e_observed_state", 1e-6, 0},
    {"digits_cnn_pt2e_int8", 2.1 * kStep, 5},
};

class QuantizedPrograms : public ::testing::TestWithParam<Fixture> {};

void Check(const Fixture& fixture, std::vector<std::string> backends) {
  CompileOptions options;
  options.backends = std::move(backends);
  const auto outcome = CompileAndRun(StrCat("tests/fixtures/quantized/", fixture.name, ".pt2"), options);
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_GT(outcome->with_eager.steps, 0u);
  EXPECT_LE(outcome->with_eager.worst, outcome->interpreted.worst + fixture.tolerance) << outcome->with_eager.worst_name;
  size_t layers = 0;
  for (const LayerReport& l : outcome->report.quantize.layers) layers += !l.became.empty();
  EXPECT_EQ(layers, fixture.layers);
  EXPECT_EQ(outcome->report.linears_quantized, outcome->report.linears_total);
}
TEST_P(QuantizedPrograms, OnCpuAlone) { Check(GetParam(), {"cpu"}); }
TEST_P(QuantizedPrograms, OnXnnpack) { Check(GetParam(), {"xnnpack", "cpu"}); }

INSTANTIATE_TEST_SUITE_P(All, QuantizedPrograms, ::testing::ValuesIn(kFixtures), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

int CompareFiles(int count, char** paths) {
  int failed = 0;
  for (int i = 0; i < count; ++i)
    for (const bool xnnpack : {false, true}) {
      CompileOptions options;
      if (!xnnpack) options.backends = {"cpu"};
      const auto outcome = CompileAndRun(paths[i], options);
      const bool good = outcome.ok() && outcome->with_eager.steps > 0 && outcome->with_eager.worst <= outcome->interpreted.worst + kStep * 1.1;
      failed += !good;
      if (outcome.ok())
        std::printf("%s %s%s: %zu steps, worst %g at %s, interpreted %g, %zu delegate calls\n", good ? "ok  " : "FAIL", paths[i], xnnpack ? "" : " (cpu)",
                    outcome->with_eager.steps, outcome->with_eager.worst, outcome->with_eager.worst_name.c_str(), outcome->interpreted.worst,
                    outcome->report.partition.delegate_calls);
      else
        std::printf("FAIL %s%s: %s\n", paths[i], xnnpack ? "" : " (cpu)", outcome.status().ToString().c_str());
    }
  return failed > 0;
}

}  // namespace
}  // namespace dovetail

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return argc > 1 ? dovetail::CompareFiles(argc - 1, argv + 1) : RUN_ALL_TESTS();
}
