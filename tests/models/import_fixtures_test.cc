// Every small exported model, imported and run by the reference interpreter, gives what PyTorch gave: all outputs of all steps.
//
//   import_fixtures_test NAME.pt2 ...
// compares these files with NAME.ref.safetensors beside them instead, and prints one line for each.
#include <gtest/gtest.h>

#include <cstdio>
#include <ostream>

#include "import/import.h"
#include "ir/same_module.h"
#include "ir/text.h"
#include "models/reference.h"

namespace dovetail {
namespace {

struct Fixture {
  const char* file;  // in tests/fixtures, without ".pt2"
  size_t steps, states;
  friend void PrintTo(const Fixture& f, std::ostream* out) { *out << f.file; }
};
constexpr Fixture kFixtures[] = {
    {"llama_tiny_index_put", 5, 4},
    {"llama_tiny_index_put.core", 5, 4},
    {"llama_tiny_index_copy", 5, 4},
    {"llama_tiny_slice_copy", 5, 4},
    {"llama_tiny_aten_copy", 5, 4},
    {"llama_tiny_decode_static", 8, 4},
    {"llama_complex_rope", 1, 0},
    {"hf_llama_staticcache", 5, 6},
    {"sig_buffer_mutation", 3, 2},
    {"sig_constants", 1, 0},
    {"sig_pytree_io", 1, 0},
    {"sig_user_input_mutation", 1, 0},
    {"silero_vad_stateful", 40, 3},
    {"digits_cnn_trained", 1, 0},
    {"digits_cnn_trained.core", 1, 0},
    {"import/activations", 1, 0},
    {"import/attention", 1, 0},
    {"import/cells", 1, 0},
    {"import/complex_numbers", 1, 0},
    {"import/dynamic_shapes", 2, 0},
    {"import/indexing", 1, 0},
    {"import/flips", 1, 0},
    {"import/input_written", 1, 0},
    {"import/layers", 1, 0},
    {"import/norms_of_input", 2, 0},
    {"import/norms_of_input.core", 2, 0},
    {"import/pixel_shuffles", 2, 0},
    {"import/pixel_shuffles.core", 2, 0},
    {"import/positions", 1, 0},
    {"import/products", 1, 0},
    {"import/promotion", 1, 0},
    {"import/ranges", 1, 0},
    {"import/reductions", 1, 0},
    {"import/reshape_copies", 1, 0},
    {"import/smooth_activations", 2, 0},
    {"import/smooth_activations.core", 2, 0},
    {"import/state_at_item", 2, 1},
    {"import/state_broadcast", 2, 1},
    {"import/state_broadcast.core", 2, 1},
    {"import/state_cross_copy", 3, 2},
    {"import/state_cross_copy.core", 3, 2},
    {"import/state_indirect", 3, 1},
    {"import/state_indirect.core", 3, 1},
    {"import/state_init", 2, 1},
    {"import/state_init.core", 2, 1},
    {"import/state_of_number", 2, 2},
    {"import/state_of_number.core", 2, 2},
    {"import/state_read_after_value", 2, 1},
    {"import/state_read_after_value.core", 2, 1},
    {"import/state_replaced", 3, 1},
    {"import/state_replaced.core", 3, 1},
    {"import/state_returned", 2, 1},
    {"import/state_returned.core", 2, 1},
    {"import/state_two_names", 2, 1},
    {"import/view_chain", 2, 1},
    {"import/weight_norms", 1, 0},
    {"import/view_of_temporary", 1, 0},
    {"import/view_of_temporary.core", 1, 0},
};

constexpr std::string_view kPt2 = ".pt2", kCore = ".core";

std::string Path(std::string_view name) { return StrCat("tests/fixtures/", name, kPt2); }

// "a/b.core.pt2" is compared with "a/b.ref.safetensors".
Result<testing::Tensors> ReadReferenceOf(std::string_view path) {
  for (std::string_view ending : {kPt2, kCore})
    if (path.ends_with(ending)) path.remove_suffix(ending.size());
  return testing::ReadSafetensors(StrCat(path, ".ref.safetensors"));
}

struct Outcome {
  Module module;
  testing::Comparison comparison;
};
Result<Outcome> ImportAndCompare(const std::string& path) {
  Outcome outcome;
  DT_ASSIGN_OR_RETURN(outcome.module, ImportPt2(path));
  DT_ASSIGN_OR_RETURN(const testing::Tensors reference, ReadReferenceOf(path));
  DT_ASSIGN_OR_RETURN(outcome.comparison, testing::CompareWithReference(outcome.module, reference));
  return outcome;
}

class ImportFixtures : public ::testing::TestWithParam<Fixture> {};

TEST_P(ImportFixtures, GiveWhatPyTorchGave) {
  const auto outcome = ImportAndCompare(Path(GetParam().file));
  ASSERT_TRUE(outcome.ok()) << outcome.status().ToString();
  EXPECT_EQ((*outcome).module.states.size(), GetParam().states);
  EXPECT_EQ((*outcome).comparison.steps, GetParam().steps);
  EXPECT_LE((*outcome).comparison.worst, 1e-4) << (*outcome).comparison.worst_name;
}

TEST_P(ImportFixtures, PrintAndParseAgain) {
  auto module = ImportPt2(Path(GetParam().file));
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const std::string text = Print(*module);
  auto parsed = Parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(Print(*parsed), text);
  EXPECT_EQ(DifferenceOf(*module, *parsed), "");
}

std::string TestName(std::string_view name) {
  std::string test(name);
  for (char& c : test)
    if (c == '.' || c == '/') c = '_';
  return test;
}
INSTANTIATE_TEST_SUITE_P(All, ImportFixtures, ::testing::ValuesIn(kFixtures), [](const auto& info) { return TestName(info.param.file); });

// Two exports of one model end with the same states, by name.
struct Pair {
  const char *one, *other;
  friend void PrintTo(const Pair& p, std::ostream* out) { *out << p.one << " and " << p.other; }
};
constexpr Pair kPairs[] = {
    {"llama_tiny_index_put", "llama_tiny_index_put.core"},
    {"llama_tiny_index_put", "llama_tiny_index_copy"},
    {"llama_tiny_index_put", "llama_tiny_slice_copy"},
    {"llama_tiny_index_put", "llama_tiny_aten_copy"},
    {"import/state_broadcast", "import/state_broadcast.core"},
    {"import/state_cross_copy", "import/state_cross_copy.core"},
    {"import/state_indirect", "import/state_indirect.core"},
    {"import/state_init", "import/state_init.core"},
    {"import/state_of_number", "import/state_of_number.core"},
    {"import/state_read_after_value", "import/state_read_after_value.core"},
    {"import/state_replaced", "import/state_replaced.core"},
    {"import/state_returned", "import/state_returned.core"},
};

class ImportPairs : public ::testing::TestWithParam<Pair> {};

TEST_P(ImportPairs, EndWithEqualStates) {
  const auto one = ImportAndCompare(Path(GetParam().one)), other = ImportAndCompare(Path(GetParam().other));
  ASSERT_TRUE(one.ok()) << one.status().ToString();
  ASSERT_TRUE(other.ok()) << other.status().ToString();
  const auto &a = (*one).module.states, &b = (*other).module.states;
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    size_t k = 0;
    while (k < b.size() && b[k].name != a[i].name) ++k;
    ASSERT_LT(k, b.size()) << a[i].name;
    const auto difference = testing::Difference((*other).comparison.states[k], (*one).comparison.states[i]);
    ASSERT_TRUE(difference.ok()) << difference.status().ToString();
    EXPECT_LE(*difference, 1e-5) << a[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ImportPairs, ::testing::ValuesIn(kPairs), [](const auto& info) { return TestName(info.param.other); });

// A state starts as the exported buffer, and nothing that runs changes that.
TEST(ImportedStates, StartAsExported) {
  auto module = ImportPt2(Path("import/state_init"));
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const auto reference = ReadReferenceOf(Path("import/state_init"));
  ASSERT_TRUE(reference.ok()) << reference.status().ToString();
  for (int run = 0; run < 2; ++run) {
    auto states = InitStates(*module);
    ASSERT_TRUE(states.ok());
    ASSERT_EQ((*states).size(), 1u);
    for (int i = 0; i < 8; ++i) EXPECT_EQ((*states)[0].view().as<float>()[i], 1.0f);
    ASSERT_TRUE(testing::CompareWithReference(*module, *reference).ok());
  }
}

int CompareFiles(int count, char** paths) {
  int failed = 0;
  for (int i = 0; i < count; ++i) {
    const auto outcome = ImportAndCompare(paths[i]);
    const bool good = outcome.ok() && (*outcome).comparison.worst <= 1e-4 && (*outcome).comparison.steps > 0;
    failed += !good;
    if (outcome.ok())
      std::printf("%s %s: %zu steps, %zu states, worst %g at %s\n", good ? "ok  " : "FAIL", paths[i], (*outcome).comparison.steps,
                  (*outcome).module.states.size(),
                  (*outcome).comparison.worst, (*outcome).comparison.worst_name.c_str());
    else
      std::printf("FAIL %s: %s\n", paths[i], outcome.status().ToString().c_str());
  }
  return failed > 0;
}

}  // namespace
}  // namespace dovetail

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  return argc > 1 ? dovetail::CompareFiles(argc - 1, argv + 1) : RUN_ALL_TESTS();
}
