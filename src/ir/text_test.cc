// The text form: what is printed reads back as the same program, and what does not read is told with its line and column.
#include <gtest/gtest.h>

#include "ir/same_module.h"
#include "ir/text.h"

namespace dovetail {
namespace {

// Parses and prints; the text is its own fixed point and both modules are the same program.
std::string Printed(std::string_view text) {
  auto module = Parse(text);
  EXPECT_TRUE(module.ok()) << module.status().ToString();
  if (!module.ok()) return "";
  const std::string once = Print(*module);
  auto again = Parse(once);
  EXPECT_TRUE(again.ok()) << again.status().ToString() << "\n" << once;
  if (!again.ok()) return "";
  EXPECT_EQ(Print(*again), once);
  EXPECT_EQ(DifferenceOf(*module, *again), "") << once;
  return once;
}

TEST(TextTest, CanonicalTextIsPrintedAsItIs) {
  for (const std::string_view text : {
           R"(module {
}
)",
           R"(module {
  symbol s0 = 1..63
  symbol s1 = 0..
  constant @scale : f32[2] = [0.5,1.0]
  constant @"odd name" : i64[] = [3]
  constant @weight : f32[64,32] = external
  state @k_cache : f32[1,8,4] = zeros
  graph @forward(%pos: i64[s0], %x: f32[1,s0,4]) {
    %c = state.read @k_cache : f32[1,8,4]
    %u = index_put %c, _, %pos, %x : f32[1,8,4]
    state.write @k_cache, %u
    %w = const @weight : f32[64,32]
    %0 = slice %w {start=1, end=2} : f32[1,32]
    %1 = view %x {size=[s0,4]} : f32[s0,4]
    return %0, %1, %u
  }
  graph @second(%0: f32[s0*s1,floordiv(s0,2)]) {
    return %0
  }
}
)",
           R"(module {
  state @s : f32[2] = [1.0,-0.0]
  graph @forward(%x: f32[2]) {
    %s = state.read @s : f32[2]
    %y, %t = delegate %x, %s {backend="cpu", aliases=[-1,1]} : f32[2], f32[2] (%a: f32[2], %b: f32[2]) {
      %0 = add %a, %b : f32[2]
      return %a, %0
    }
    state.write @s, %t
    return %y
  }
}
)"}) {
    EXPECT_EQ(Printed(text), text);
  }
}

TEST(TextTest, DataOfEveryType) {
  const char* lines[] = {
      "f32[6] = [0.1,-0.0,inf,-inf,nan,3.4028235e+38]", "f64[3] = [0.1,1e-300,5e-324]", "f16[3] = [0.1,65504.0,inf]", "bf16[2] = [0.1,-3.39e+38]",
      "i64[2] = [-9223372036854775808,9223372036854775807]", "i32[2] = [-2147483648,7]", "i16[1] = [-5]", "i8[2] = [-128,127]", "u8[1] = [255]",
      "u16[1] = [65535]", "u32[1] = [4294967295]", "bool[2] = [true,false]", "f32[0] = []", "f32[] = [0.0]", "f32[2,2] = zeros", "c64[2] = external",
  };
  for (const char* line : lines) {
    const std::string text = Printed(StrCat("module { constant @c : ", line, " }"));
    // f16 and bf16 print what they hold, which reads back as the same bits.
    const bool half = std::string_view(line).starts_with("f16") || std::string_view(line).starts_with("bf16");
    EXPECT_TRUE(half || text.find(line) != std::string::npos) << text;
  }
}

TEST(TextTest, AttributesOfEveryKind) {
  const std::string text = Printed(R"(module {
    symbol s0 = 2..8
    graph @f(%x: f32[s0,4], %y: f32[1,2,6,6]) {
      %a = clamp %x {min=-1.5} : f32[s0,4]              // the other bound stays none
      %b = gelu %a {approximate="tanh"} : f32[s0,4]
      %c = sum %b {dim=[-1], keepdim=true} : f32[s0,1]
      %d = full {size=[s0,1], fill_value=inf, out_dtype=f32} : f32[s0,1]
      %e = add %c, %d {alpha=2} : f32[s0,1]
      %f = arange {start=0, end=2*s0+1, step=2, out_dtype=i64} : i64[floordiv(2*s0+2,2)]
      %g, %h = max_pool2d_with_indices %y {kernel_size=[2,2], stride=[]} : f32[1,2,3,3], i64[1,2,3,3]
      %i = cat %x, %x, %x : f32[3*s0,4]
      return %e, %f, %g, %i, %h
    }
  })");
  for (const char* part : {"clamp %x {min=-1.5} :", "gelu %a {approximate=\"tanh\"}", "{dim=[-1], keepdim=true}",
                           "{size=[s0,1], fill_value=inf, out_dtype=f32}", "{alpha=2}",
                           "{start=0, end=2*s0+1, step=2, out_dtype=i64}", "%g, %h = max_pool2d_with_indices %y {kernel_size=[2,2]}", "cat %x, %x, %x :"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(TextTest, NamesThatNeedCare) {
  const std::string text = Printed(R"(module {
    constant @"a\"b\\c" : f32[1] = [1.0]
    constant @".hidden" : f32[1] = [2.0]
    constant @"x..y" : f32[1] = [3.0]
    graph @f(%7: f32[1], %"in-put": f32[1]) {
      %12 = add %7, %"in-put" : f32[1]
      %0_1 = neg %12 : f32[1]
      %2 = const @"a\"b\\c" : f32[1]
      %3 = const @".hidden" : f32[1]
      %4 = const @"x..y" : f32[1]
      return %0_1, %2, %3, %4
    }
  })");
  EXPECT_NE(text.find("%1 = add %0, %\"in-put\""), std::string::npos) << text;  // numbers are given anew
}

TEST(TextTest, EqualNamesAreToldApart) {
  Module module;
  module.graphs.push_back(std::make_unique<Graph>("f"));
  Graph& graph = *module.graphs[0];
  ValueId v = graph.AddInput("a", TensorType(DType::kF32, {Dim(2)}));
  for (const char* name : {"a", "a_1", "a", "5", ""}) {
    const NodeId node = graph.AddNode(OpId::kNeg);
    graph.node(node).operands = {v};
    v = graph.AddResult(node, TensorType(DType::kF32, {Dim(2)}), name);
    graph.order.push_back(node);
  }
  graph.outputs = {v};
  const std::string text = Print(module);
  auto parsed = Parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString() << text;
  EXPECT_EQ(DifferenceOf(module, *parsed), "");
  EXPECT_EQ(Print(*parsed), text);
}

std::string ErrorOf(std::string_view text) {
  auto module = Parse(text, "bad.ir");
  return module.ok() ? "" : std::string(module.status().message());
}
std::string ErrorOfNode(std::string_view line) { return ErrorOf(StrCat("module {\n  graph @f(%x: f32[2]) {\n    ", line, "\n    return %x\n  }\n}")); }

TEST(TextErrors, ModuleLevel) {
  EXPECT_EQ(ErrorOf(""), "bad.ir:1:1: expected 'module'");
  EXPECT_EQ(ErrorOf("module {"), "bad.ir:1:9: expected symbol, constant, state or graph");
  EXPECT_EQ(ErrorOf("module {\n  weight @w\n}"), "bad.ir:2:10: unknown item 'weight'");
  EXPECT_EQ(ErrorOf("module { } more"), "bad.ir:1:12: text after the module");
  EXPECT_EQ(ErrorOf("module { symbol s0 = 5..4 }"), "bad.ir:1:27: an empty range");
  EXPECT_EQ(ErrorOf("module { constant @c : f33[2] = zeros }"), "bad.ir:1:24: unknown dtype 'f33'");
  EXPECT_EQ(ErrorOf("module { constant @c : f32[s0] = zeros }"), "bad.ir:1:32: 'c' has a dynamic shape");
  EXPECT_EQ(ErrorOf("module { constant @c : f32[-1] = zeros }"), "bad.ir:1:30: a negative size");
  EXPECT_EQ(ErrorOf("module { constant @c : f32[1,1,1,1,1,1,1,1,1] = zeros }"), "bad.ir:1:44: more than 8 dimensions");
  EXPECT_EQ(ErrorOf("module { constant @c : f32[1000000,1000000] = zeros }"), "bad.ir:1:47: 'c' is too large for a text form");
  EXPECT_EQ(ErrorOf("module { constant @c : i64[1] = [1.5] }"), "bad.ir:1:37: '1.5' is no element of a tensor of i64");
  EXPECT_EQ(ErrorOf("module { constant @c : bool[1] = [1] }"), "bad.ir:1:36: '1' is no element of a tensor of bool");
  EXPECT_EQ(ErrorOf("module { constant @c : f32[2] = [1.0] }"), "bad.ir:1:37: expected ','");
  EXPECT_EQ(ErrorOf("module { state @c : f32[1] = zeros state @c : f32[1] = zeros }"), "bad.ir:1:56: 'c' is defined twice");
  EXPECT_EQ(ErrorOf("module { graph @f() { return } graph @f() { return } }"), "bad.ir:1:40: graph @f is defined twice");
}

TEST(TextErrors, NodeLines) {
  EXPECT_EQ(ErrorOfNode("%y = negate %x : f32[2]"), "bad.ir:3:10: unknown operator 'negate'");
  EXPECT_EQ(ErrorOfNode("%y = neg %z : f32[2]"), "bad.ir:3:17: %z is not defined");
  EXPECT_EQ(ErrorOfNode("%x = neg %x : f32[2]"), "bad.ir:4:5: %x is defined twice");
  EXPECT_EQ(ErrorOfNode("%y = neg %x {alpha=1} : f32[2]"), "bad.ir:3:25: operator neg has no attribute 'alpha'");
  EXPECT_EQ(ErrorOfNode("%y = add %x, %x {alpha=?} : f32[2]"), "bad.ir:3:29: '?' is not a value");
  EXPECT_EQ(ErrorOfNode("%y = sum %x {dim=[1, true]} : f32[2]"), "bad.ir:3:31: a list of mixed kinds");
  EXPECT_EQ(ErrorOfNode("%y = neg %x"), "bad.ir:4:5: expected ':'");
  EXPECT_EQ(ErrorOfNode("%y = const @none : f32[2]"), "bad.ir:3:22: @none is not defined");
  EXPECT_EQ(ErrorOfNode("%y = gelu %x {approximate=\"tanh} : f32[2]"), "3:31: a string without its end");
}

TEST(TextErrors, TheModuleIsVerified) {
  EXPECT_EQ(ErrorOfNode("%y = neg %x : f32[3]"), "result 0 has type f32[3] where the operands give f32[2]");
}

TEST(TextErrors, NestedTooDeeply) {
  std::string text = "module { graph @f() { ";
  for (int i = 0; i < 20; ++i) text += "delegate {backend=\"x\"} () { ";
  EXPECT_EQ(ErrorOf(text).substr(ErrorOf(text).find(": ") + 2), "regions are nested too deeply");
}

}  // namespace
}  // namespace dovetail
