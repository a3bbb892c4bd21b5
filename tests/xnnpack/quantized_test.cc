// Quantized operators against the interpreter, over odd shapes: static ones to one step of their result, dynamic ones to 1e-3.
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "format/xnnpack_blob.h"
#include "format/xnnpack_generated.h"
#include "xnnpack/quantized_cases.h"

namespace dovetail {
namespace {

class QuantizedTest : public testing::TestWithParam<size_t> {};

TEST_P(QuantizedTest, MatchesTheInterpreter) { ExpectMatches(QuantizedCases()[GetParam()]); }

INSTANTIATE_TEST_SUITE_P(All, QuantizedTest, testing::Range(size_t{0}, QuantizedCases().size()),
                         [](const auto& info) { return QuantizedCases()[info.param].name; });

size_t Converts(const std::string& name) {
  const auto c = std::find_if(QuantizedCases().begin(), QuantizedCases().end(), [&](const Case& one) { return one.name == name; });
  if (c == QuantizedCases().end()) return SIZE_MAX;
  Harness h(*c);
  if (!h.Load().ok()) return SIZE_MAX;
  const auto blob = ReadXnnpackBlob(std::as_bytes(std::span(h.lowered().payload)), "blob");
  if (!blob.ok()) return SIZE_MAX;
  size_t count = 0;
  for (const xn::XNode* node : *blob->graph->xnodes()) count += node->xnode_union_type() == xn::XNodeUnion::XNNConvert;
  return count;
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
