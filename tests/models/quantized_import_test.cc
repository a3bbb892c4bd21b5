// Models that were quantized in PyTorch (tests/import/record_quantized.py): as imported they compute what eager PyTorch does, and after the passes
// their layers are quantized operators that differ from that by what recover_quantized.cc says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "import/import.h"
#include "ir/text.h"
#include "models/reference.h"
#include "passes/passes.h"
#include "quant/quantize.h"
#include "quant/stored_layers.h"

namespace dovetail {
namespace {

std::string Path(std::string_view name) { return StrCat("tests/fixtures/quantized/", name, ".pt2"); }
Result<testing::Tensors> ReferenceOf(std::string_view name) {
  if (name.ends_with(".core")) name.remove_suffix(5);
  return testing::ReadSafetensors(StrCat("tests/fixtures/quantized/", name, ".ref.safetensors"));
}

using Counts = std::map<std::string, size_t, std::less<>>;
Counts CountOps(const Module& module) {
  Counts counts;
  for (NodeId id : module.graphs[0]->order) ++counts[std::string(GetOp(module.graphs[0]->node(id).op).name)];
  return counts;
}

Result<Module> ImportAndOptimize(std::string_view name) {
  DT_ASSIGN_OR_RETURN(Module module, ImportPt2(Path(name)));
  for (const Pass& pass : CorePasses()) DT_RETURN_IF_ERROR(RunPass(pass, module));
  return module;
}

// The f32 matrices and filters that the graph holds: weights that nobody made integers of.
size_t FloatWeights(const Module& module) {
  size_t n = 0;
  for (NodeId id : module.graphs[0]->order) {
    const Node& node = module.graphs[0]->node(id);
    if (node.op != OpId::kConst) continue;
    const TensorType& type = module.constants[node.ref].type;
    n += type.dtype == DType::kF32 && type.rank() >= 2 && type.shape.numel().value() > 64;
  }
  return n;
}

struct Fixture {
  const char* name;
  double as_imported, recovered;  // largest difference from eager, as a part of the output's range
  size_t linears, convolutions, embeddings, dynamic;
  size_t real;  // dequantize and quantize that remain: at the inputs and outputs, around what computes in f32
  friend void PrintTo(const Fixture& f, std::ostream* out) { *out << f.name; }
};
constexpr double kStep = 1.0 / 255;
constexpr Fixture kFixtures[] = {
    {"pt2e_static_per_channel", 1.1 * kStep, 1.1 * kStep, 1, 4, 0, 0, 2},
    {"pt2e_static_per_tensor", 1.1 * kStep, 1.1 * kStep, 1, 4, 0, 0, 2},
    {"pt2e_static_convolutions", 1.1 * kStep, 1.1 * kStep, 0, 4, 0, 0, 4},
    {"pt2e_static_conv1d", 1.1 * kStep, 1.1 * kStep, 0, 2, 0, 0, 2},
    {"pt2e_static_conv1d.core", 1.1 * kStep, 1.1 * kStep, 0, 2, 0, 0, 2},
    {"pt2e_static_cache", 1.1 * kStep, 1.1 * kStep, 4, 0, 0, 0, 8},
    {"pt2e_observed_state", 1e-6, 1e-6, 0, 0, 0, 0, 4},
    {"digits_cnn_pt2e_int8", 1.1 * kStep, 1.1 * kStep, 1, 4, 0, 0, 2},
    {"pt2e_dynamic_shared", 1e-5, 0.02, 7, 0, 0, 4, 0},
    {"pt2e_dynamic_duplicated", 1e-5, 0.02, 7, 0, 0, 4, 0},
    {"ao_8da4w", 1e-5, 0.01, 2, 0, 0, 2, 0},
    {"ao_8da4w_embedding", 1e-5, 0.01, 1, 0, 1, 1, 0},
    {"ao_8da8w", 1e-5, 0.01, 2, 0, 0, 2, 0},
    {"ao_int8_dynamic", 1e-5, 0.01, 2, 0, 0, 2, 0},
    {"ao_int8_weight_only", 1e-5, 1e-5, 2, 0, 0, 0, 0},
    {"ao_intx4_weight_only", 1e-5, 0.01, 2, 0, 0, 0, 0},
    {"ao_intx8_weight_only", 1e-5, 1e-5, 2, 0, 0, 0, 0},
};

class QuantizedFixtures : public ::testing::TestWithParam<Fixture> {};

TEST_P(QuantizedFixtures, ComputeWhatEagerDoes) {
  auto module = ImportPt2(Path(GetParam().name));
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  auto reference = ReferenceOf(GetParam().name);
  ASSERT_TRUE(reference.ok()) << reference.status().ToString();
  auto comparison = testing::CompareWithReference(*module, *reference);
  ASSERT_TRUE(comparison.ok()) << comparison.status().ToString();
  EXPECT_GT(comparison->steps, 0u);
  EXPECT_LE(comparison->worst, GetParam().as_imported) << comparison->worst_name;
  RecordProperty("worst", std::to_string(comparison->worst));
}

TEST_P(QuantizedFixtures, BecomeQuantizedOperators) {
  auto module = ImportAndOptimize(GetParam().name);
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  auto reference = ReferenceOf(GetParam().name);
  ASSERT_TRUE(reference.ok()) << reference.status().ToString();
  auto comparison = testing::CompareWithReference(*module, *reference);
  ASSERT_TRUE(comparison.ok()) << comparison.status().ToString();
  EXPECT_LE(comparison->worst, GetParam().recovered) << comparison->worst_name;
  RecordProperty("worst", std::to_string(comparison->worst));
  Counts counts = CountOps(*module);
  EXPECT_EQ(counts["quantized_linear"], GetParam().linears);
  EXPECT_EQ(counts["quantized_convolution"], GetParam().convolutions);
  EXPECT_EQ(counts["quantized_embedding"], GetParam().embeddings);
  EXPECT_EQ(counts["quantize_dynamic"], GetParam().dynamic);
  EXPECT_EQ(counts["dequantize"] + counts["quantize"], GetParam().real);
  for (const char* op : {"linear", "convolution", "embedding", "choose_qparams_affine", "quantize_affine", "dequantize_affine"})
    EXPECT_EQ(counts[op], 0u) << op;
  EXPECT_EQ(FloatWeights(*module), 0u);
}

TEST_P(QuantizedFixtures, PrintAndParseAgain) {
  auto module = ImportAndOptimize(GetParam().name);
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const std::string text = Print(*module);
  auto parsed = Parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(Print(*parsed), text);
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedFixtures, ::testing::ValuesIn(kFixtures), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

// However often an export quantizes a value, the program does it once.
TEST(QuantizedImport, SharedAndDuplicatedChainsAreOneProgram) {
  auto shared = ImportAndOptimize("pt2e_dynamic_shared"), duplicated = ImportAndOptimize("pt2e_dynamic_duplicated");
  ASSERT_TRUE(shared.ok()) << shared.status().ToString();
  ASSERT_TRUE(duplicated.ok()) << duplicated.status().ToString();
  EXPECT_EQ(Print(*shared), Print(*duplicated));
}

TEST(QuantizedImport, DigitsAreReadAsInPyTorch) {
  auto module = ImportAndOptimize("digits_cnn_pt2e_int8");
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  auto reference = ReferenceOf("digits_cnn_pt2e_int8"), labels = testing::ReadSafetensors("tests/fixtures/quantized/digits_cnn_labels.safetensors");
  ASSERT_TRUE(reference.ok() && labels.ok());
  auto states = InitStates(*module);
  ASSERT_TRUE(states.ok());
  const OwnedTensor inputs[] = {reference->at("in.0.0")};
  auto outputs = Interpret(*module, *module->graphs[0], inputs, *states);
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  const auto right = [&](const OwnedTensor& scores) {
    size_t n = 0;
    for (int64_t i = 0; i < 360; ++i) {
      const float* s = scores.view().as<float>() + i * 10;
      n += std::max_element(s, s + 10) - s == labels->at("labels").view().as<int64_t>()[i];
    }
    return n;
  };
  EXPECT_EQ(right(reference->at("out.0.0")), 357u);  // 99.17% of 360
  EXPECT_GE(right((*outputs)[0]), 356u);
}

TEST(QuantizedImport, StatesStayStates) {
  auto cache = ImportAndOptimize("pt2e_static_cache");
  ASSERT_TRUE(cache.ok()) << cache.status().ToString();
  ASSERT_EQ(cache->states.size(), 2u);
  EXPECT_EQ(cache->states[0].type.ToString(), "f32[8,16]");
  EXPECT_EQ(CountOps(*cache)["state.write"], 2u);
}

TEST(QuantizedImport, ReportsItsLayers) {
  auto layers = [](std::string_view name) {
    QuantizeReport report;
    auto module = ImportAndOptimize(name);
    if (module.ok()) ReportQuantizedLayers(*module, report);
    std::string text = module.status().ok() ? "" : module.status().ToString();
    for (const LayerReport& l : report.layers) text += StrCat(l.path, ": ", l.op, " ", l.became, "\n");
    return text;
  };
  EXPECT_EQ(layers("ao_8da4w_embedding"), "embed: embedding i8 per_channel\nhead: linear i8 dynamic per_row x i4 per_block size=32\n");
  EXPECT_EQ(layers("ao_int8_weight_only"), "up: linear f32 x i8 per_channel\ndown: linear f32 x i8 per_channel\n");
  EXPECT_EQ(layers("pt2e_static_conv1d"), "wide: convolution i8 per_tensor x i8 per_channel\nnarrow: convolution i8 per_tensor x i8 per_channel\n");
}

// A scheme takes the layers that are still in float; the others stay what they are.
TEST(QuantizedImport, ASchemeLeavesQuantizedLayersAlone) {
  auto module = ImportAndOptimize("ao_8da4w_embedding");
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const std::string before = Print(*module);
  QuantizeOptions options;
  options.scheme = FindScheme("int8-dynamic");
  QuantizeReport report;
  ASSERT_TRUE(Quantize(*module, options, report).ok());
  EXPECT_TRUE(report.layers.empty());
  module->form = Form::kCore;
  EXPECT_EQ(Print(*module), before);
}

}  // namespace
}  // namespace dovetail
