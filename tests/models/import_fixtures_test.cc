// Every small exported model, imported and run by the reference interpreter, gives what PyTorch gave: all outputs of all steps.
#include <gtest/gtest.h>

#include "import/import.h"
#include "ir/text.h"
#include "models/reference.h"

namespace dovetail {
namespace {

struct Fixture {
  const char* file;  // in tests/fixtures, without ".pt2"
  const char* reference;
  size_t steps, states;
};
constexpr Fixture kFixtures[] = {
    {"llama_tiny_index_put", "llama_tiny_index_put", 5, 4},
    {"llama_tiny_index_put.core", "llama_tiny_index_put", 5, 4},
    {"llama_tiny_index_copy", "llama_tiny_index_copy", 5, 4},
    {"llama_tiny_slice_copy", "llama_tiny_slice_copy", 5, 4},
    {"llama_tiny_aten_copy", "llama_tiny_aten_copy", 5, 4},
    {"llama_tiny_decode_static", "llama_tiny_decode_static", 5, 4},
    {"llama_complex_rope", "llama_complex_rope", 1, 0},
    {"hf_llama_staticcache", "hf_llama_staticcache", 5, 6},
    {"sig_buffer_mutation", "sig_buffer_mutation", 3, 2},
    {"sig_constants", "sig_constants", 1, 0},
    {"sig_pytree_io", "sig_pytree_io", 1, 0},
    {"sig_user_input_mutation", "sig_user_input_mutation", 1, 0},
    {"silero_vad_stateful", "silero_vad_stateful", 30, 3},
    {"digits_cnn_trained", "digits_cnn_trained", 1, 0},
    {"digits_cnn_trained.core", "digits_cnn_trained", 1, 0},
};

class ImportFixtures : public ::testing::TestWithParam<Fixture> {};

TEST_P(ImportFixtures, GiveWhatPyTorchGave) {
  const std::string folder = "tests/fixtures/";
  auto module = ImportPt2(folder + GetParam().file + ".pt2");
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  EXPECT_EQ(module->states.size(), GetParam().states);
  auto reference = testing::ReadSafetensors(folder + GetParam().reference + ".ref.safetensors");
  ASSERT_TRUE(reference.ok()) << reference.status().ToString();
  auto result = testing::CompareWithReference(*module, *reference);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->steps, GetParam().steps);
  EXPECT_LE(result->worst, 1e-4) << result->worst_name;
}

TEST_P(ImportFixtures, PrintAndParseAgain) {
  auto module = ImportPt2(std::string("tests/fixtures/") + GetParam().file + ".pt2");
  ASSERT_TRUE(module.ok()) << module.status().ToString();
  const std::string text = Print(*module);
  auto parsed = Parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  EXPECT_EQ(Print(*parsed), text);
}

INSTANTIATE_TEST_SUITE_P(All, ImportFixtures, ::testing::ValuesIn(kFixtures), [](const auto& info) {
  std::string name = info.param.file;
  for (char& c : name)
    if (c == '.') c = '_';
  return name;
});

}  // namespace
}  // namespace dovetail
