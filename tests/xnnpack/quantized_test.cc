// Quantized operators against the interpreter, over odd shapes: static ones to one step of their result, dynamic ones to 1e-3.
#include <gtest/gtest.h>

#include "xnnpack/quantized_cases.h"

namespace dovetail {
namespace {

class QuantizedTest : public testing::TestWithParam<size_t> {};

TEST_P(QuantizedTest, MatchesTheInterpreter) { ExpectMatches(QuantizedCases()[GetParam()]); }

INSTANTIATE_TEST_SUITE_P(All, QuantizedTest, testing::Range(size_t{0}, QuantizedCases().size()),
                         [](const auto& info) { return QuantizedCases()[info.param].name; });

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
