// Quantized operators against the interpreter, over odd shapes: static ones to one step of their result, dynamic ones to 1e-3.
#include <gtest/gtest.h>

#include <algorithm>

#include "xnnpack/quantized_cases.h"

namespace dovetail {
namespace {

class QuantizedTest : public testing::TestWithParam<size_t> {};

TEST_P(QuantizedTest, MatchesTheInterpreter) { ExpectMatches(QuantizedCases()[GetParam()]); }

INSTANTIATE_TEST_SUITE_P(All, QuantizedTest, testing::Range(size_t{0}, QuantizedCases().size()),
                         [](const auto& info) { return QuantizedCases()[info.param].name; });

std::vector<std::string> Kinds(const std::string& name) {
  const auto c = std::find_if(QuantizedCases().begin(), QuantizedCases().end(), [&](const Case& one) { return one.name == name; });
  if (c == QuantizedCases().end()) return {"no case"};
  Harness h(*c);
  if (Status s = h.Load(); !s.ok()) return {s.ToString()};
  return h.NodeKinds();
}
size_t Converts(const std::string& name) {
  const std::vector<std::string> kinds = Kinds(name);
  return kinds.size() == 1 && !kinds[0].starts_with("XNN") ? SIZE_MAX : static_cast<size_t>(std::count(kinds.begin(), kinds.end(), "XNNConvert"));
}

TEST(Sources, AreLetGoWithTheirScales) {
  const auto c = std::find_if(QuantizedCases().begin(), QuantizedCases().end(), [](const Case& one) { return one.name == "linear_dynamic_blocks"; });
  Harness h(*c);
  ASSERT_TRUE(h.Load().ok());
  EXPECT_EQ(h.released(), 7u * 32 + 7u * 2 * 2 + 7u * 4);
}

TEST(StaticForm, ConvertsNothing) {
  for (const char* name :
       {"linear", "linear_no_bias", "linear_relu", "add", "add_broadcast", "add_constant", "sub", "sub_broadcast_first", "mul", "relu", "clamp", "sigmoid",
        "tanh", "abs", "neg", "exp", "cos", "view_permute_slice", "cat", "pad", "pad_before_one_dim", "max_pool", "mean_spatial", "outputs", "conv_plain",
        "conv_depthwise", "conv_transposed_groups", "conv_one_dim"})
    EXPECT_EQ(Converts(name), 0u) << name;
}

// Two around an operator of one operand, more where there are more, one where the result or an operand is f32 or a constant.
TEST(StaticForm, ElseItIsInF32) {
  EXPECT_EQ(Converts("linear_beyond_the_ratio"), 2u);
  EXPECT_EQ(Converts("linear_to_f32"), 1u);
  EXPECT_EQ(Converts("conv_to_f32"), 1u);
  EXPECT_EQ(Converts("relu_other_scale"), 2u);
  EXPECT_EQ(Converts("softmax"), 2u);
  EXPECT_EQ(Converts("avg_pool"), 2u);
  EXPECT_EQ(Converts("silu_mul"), 3u);
  EXPECT_EQ(Converts("add_beyond_the_ratio"), 3u);
  // quantize of the input, and two around gelu.
  EXPECT_EQ(Converts("chain"), 3u);
}

// Few channels are turned while they are floats; nothing is left of what was converted in the other order.
TEST(StaticForm, TurnsFewChannelsBeforeItConverts) {
  const std::vector<std::string> kinds = Kinds("chain");
  ASSERT_GE(kinds.size(), 3u);
  EXPECT_EQ(kinds[0], "XNNStaticTranspose");
  EXPECT_EQ(kinds[1], "XNNConvert");
  EXPECT_EQ(kinds[2], "XNNConv2d");
}

TEST(QuantizedRefuses, WithReasons) {
  const std::string op = "quantized_convolution", attrs = Conv("1", "0", "1", 1);
  ExpectRefused(Static("f32[1,3,s0+3]", {op, "5,3,4", "", 5, attrs}, "f32[1,5,s0]"), "its input must be quantized too");
  ExpectRefused(Static("i8[0,3,11]Q(0.1,0)", {op, "5,3,4", "", 5, attrs}, "i8[0,5,8]Q(0.1,0)"), "no elements");
  ExpectRefused(Dynamic("s0,3,s1+3", "s0", {op, "5,3,4", "s0,5,s1", 5, attrs}), "at most one size may be symbolic");
  ExpectRefused(Expand("graph @f(%x: f32[2]) {\n %y = quantize %x {scale=0.1, zero_point=3, out_dtype=u8} : u8[2]Q(0.1,3)\n return %y\n}"),
                "a tensor of type u8[2]{per_tensor");
}

}  // namespace
}  // namespace dovetail
