// Runs every golden file of tests/passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "ir/builder.h"
#include "passes/golden.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

std::vector<std::string> GoldenFiles() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("tests/passes"))
    if (entry.path().extension() == ".ir") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

class GoldenFile : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenFile, GivesWhatIsExpected) {
  std::ifstream file(GetParam(), std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  auto result = RunGolden(text, GetParam());
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_GT(result->cases, 0u);
  EXPECT_TRUE(result->differences.ok()) << result->differences.ToString();
  EXPECT_EQ(result->blessed == text, result->differences.ok());
}

INSTANTIATE_TEST_SUITE_P(Passes, GoldenFile, ::testing::ValuesIn(GoldenFiles()),
                         [](const auto& info) { return std::filesystem::path(info.param).stem().string(); });

TEST(Golden, EveryPassHasAFile) {
  std::set<std::string> stems;
  for (const std::string& file : GoldenFiles()) stems.insert(std::filesystem::path(file).stem().string());
  for (const Pass& pass : CorePasses())
    EXPECT_TRUE(pass.name == "canonicalize_again" || stems.contains(std::string(pass.name))) << pass.name;
  EXPECT_TRUE(stems.contains("fuse_quantized_attention"));
  EXPECT_TRUE(stems.contains("additive_masks"));
  EXPECT_TRUE(stems.contains("decompose_for_stock"));
  EXPECT_TRUE(stems.contains("expand_quantized"));
}

TEST(RemoveCommonNodes, KeepsLargeConstantsOfDifferentRecipesApart) {
  Module m;
  m.form = Form::kCore;
  m.graphs.push_back(std::make_unique<Graph>("f"));
  Graph& g = *m.graphs[0];
  const TensorType type(DType::kI8, {Dim(8192)});
  Builder b(m, g);
  for (int fill : {1, 2}) {
    m.constants.push_back(MakeRecipeConstant(StrCat("w", fill), type, [fill](std::byte* to) { std::fill_n(to, 8192, static_cast<std::byte>(fill)); }));
    g.outputs.push_back(b.Const(static_cast<uint32_t>(m.constants.size() - 1)));
  }
  g.outputs.push_back(b.Const(1));
  ASSERT_TRUE(RemoveCommonNodes(m).ok());
  EXPECT_NE(g.outputs[0], g.outputs[1]);
  EXPECT_EQ(g.outputs[1], g.outputs[2]);
}

constexpr char kGraph[] = "module {\n  graph @f(%x: f32[2]) -> {\n";
constexpr char kIdentity[] = "module {\n  graph @f(%x: f32[2]) {\n    return %x\n  }\n}\n";

TEST(Golden, TellsWhichCaseDiffersAndBlessesIt) {
  const std::string text = StrCat("// passes: canonicalize\n", kIdentity, "// expect\n", kIdentity, "// -----\n", kIdentity);
  auto result = RunGolden(text, "a.ir");
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->cases, 2u);
  EXPECT_EQ(result->differences.count(), 1u);
  EXPECT_NE(result->differences.ToString().find("'a.ir' case 2 (line 14) differs"), std::string::npos) << result->differences.ToString();
  EXPECT_EQ(result->blessed, StrCat(text, "// expect\n", kIdentity));
}

TEST(Golden, AnErrorIsAnOutput) {
  auto result = RunGolden(StrCat("// passes: canonicalize\n", kGraph, "// expect\n// error: a.ir:2:24: expected '{'\n"), "a.ir");
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_TRUE(result->differences.ok()) << result->differences.ToString();
}

TEST(Golden, RefusesOtherFilesAndUnknownPasses) {
  auto other = RunGolden("module {}\n", "b.ir");
  EXPECT_EQ(other.status().message(), "'b.ir' does not start with '// passes: NAME,...'");
  EXPECT_EQ(ApplyPasses(kIdentity, "canonicalize,fuse_everything", "c.ir").status().message(), "unknown pass 'fuse_everything'");
}

}  // namespace
}  // namespace dovetail
