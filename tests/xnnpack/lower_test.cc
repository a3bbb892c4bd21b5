// Every lowering against the interpreter: a graph in the text form is lowered, the payload run by the delegate, and the results compared.
#include <gtest/gtest.h>

#include "xnnpack/harness.h"

namespace dovetail {
namespace {

std::string Unary(const std::string& op, const std::string& attrs = "") {
  return "graph @f(%x: f32[2,s0,5]) {\n %y = " + op + " %x" + attrs + " : f32[2,s0,5]\n return %y\n}";
}
std::string Binary(const std::string& op, const std::string& attrs = "") {
  return "graph @f(%x: f32[2,s0,5], %z: f32[s0,1]) {\n %y = " + op + " %x, %z" + attrs + " : f32[2,s0,5]\n return %y\n}";
}

const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {
      {"abs", Unary("abs")},
      {"neg", Unary("neg")},
      {"exp", Unary("exp")},
      {"log", Unary("log"), true},
      {"log1p", Unary("log1p"), true},
      {"sqrt", Unary("sqrt"), true},
      {"rsqrt", Unary("rsqrt"), true},
      {"reciprocal", Unary("reciprocal"), true},
      {"sin", Unary("sin")},
      {"cos", Unary("cos")},
      {"floor", Unary("floor")},
      {"ceil", Unary("ceil")},
      {"tanh", Unary("tanh")},
      {"sigmoid", Unary("sigmoid")},
      {"relu", Unary("relu")},
      {"silu", Unary("silu")},
      {"gelu", Unary("gelu")},
      {"gelu_tanh", Unary("gelu", " {approximate=\"tanh\"}")},
      {"hardtanh", Unary("hardtanh", " {min_val=-0.5, max_val=0.25}")},
      {"clamp_min", Unary("clamp", " {min=0.5}")},
      {"pow2", Unary("pow", " {exponent=2}")},
      {"pow3", Unary("pow", " {exponent=3.0}")},
      {"pow_rsqrt", Unary("pow", " {exponent=-0.5}"), true},
      {"add", Binary("add")},
      {"add_alpha", Binary("add", " {alpha=2}")},
      {"sub_alpha", Binary("sub", " {alpha=0.5}")},
      {"mul", Binary("mul")},
      {"div", Binary("div"), true},
      {"maximum", Binary("maximum")},
      {"minimum", Binary("minimum")},
      {"add_scalar",
       "constant @c : f32[] = [1.5]\ngraph @f(%x: f32[2,s0]) {\n %c = const @c : f32[]\n %y = add %x, %c : f32[2,s0]\n return %y\n}"},
      {"silu_mul", "graph @f(%x: f32[2,s0,8], %z: f32[2,s0,8]) {\n %y = silu_mul %x, %z : f32[2,s0,8]\n return %y\n}"},
      {"softmax", Unary("softmax", " {dim=-1}")},
      {"softmax_middle", Unary("softmax", " {dim=1}")},
      {"linear",
       "constant @w : f32[7,5] = external\nconstant @b : f32[7] = external\ngraph @f(%x: f32[2,s0,5]) {\n %w = const @w : f32[7,5]\n"
       " %b = const @b : f32[7]\n %y = linear %x, %w, %b : f32[2,s0,7]\n return %y\n}"},
      {"linear_large",
       "constant @w : f32[65,33] = external\nconstant @v : f32[33,65] = external\ngraph @f(%x: f32[s0,33]) {\n %w = const @w : f32[65,33]\n"
       " %v = const @v : f32[33,65]\n %y = linear %x, %w, _ : f32[s0,65]\n %z = linear %y, %v, _ : f32[s0,33]\n return %z\n}"},
      {"linear_dynamic_weight", "graph @f(%x: f32[s0,5], %w: f32[6,5], %b: f32[6]) {\n %y = linear %x, %w, %b : f32[s0,6]\n return %y\n}"},
      {"matmul", "graph @f(%x: f32[2,3,s0,5], %z: f32[1,3,5,4]) {\n %y = matmul %x, %z : f32[2,3,s0,4]\n return %y\n}"},
      {"matmul_constant",
       "constant @w : f32[5,7] = external\ngraph @f(%x: f32[2,s0,5]) {\n %w = const @w : f32[5,7]\n %y = matmul %x, %w : f32[2,s0,7]\n "
       "return %y\n}"},
      {"matmul_two_symbols", "graph @f(%x: f32[2,s0,s1], %z: f32[2,s1,4]) {\n %y = matmul %x, %z : f32[2,s0,4]\n return %y\n}"},
      {"bmm", "graph @f(%x: f32[3,s0,5], %z: f32[3,5,s0]) {\n %y = bmm %x, %z : f32[3,s0,s0]\n return %y\n}"},
      {"view",
       "graph @f(%x: f32[1,s0,12]) {\n %y = view %x {size=[1,s0,3,4]} : f32[1,s0,3,4]\n %z = permute %y {dims=[0,2,1,3]} : f32[1,3,s0,4]\n "
       "return %z, %y\n}"},
      {"view_merge", "graph @f(%x: f32[2,s0,3]) {\n %y = view %x {size=[2*s0,3]} : f32[2*s0,3]\n return %y\n}"},
      {"slice",
       "graph @f(%x: f32[2,s0,8]) {\n %y = slice %x {dim=2, start=2, end=-1} : f32[2,s0,5]\n %z = slice %x {dim=0, start=1} : "
       "f32[1,s0,8]\n return %y, %z\n}"},
      {"cat", "graph @f(%x: f32[2,s0], %z: f32[2,s1]) {\n %y = cat %x, %z, %x {dim=1} : f32[2,2*s0+s1]\n return %y\n}"},
      {"cat_many", "graph @f(%x: f32[2,s0], %z: f32[1,s0]) {\n %y = cat %x, %z, %x, %z, %x, %z, %z {dim=0} : f32[10,s0]\n return %y\n}"},
      {"pad", "graph @f(%x: f32[2,s0,3]) {\n %y = constant_pad_nd %x {pad=[1,2,0,3], value=0.5} : f32[2,s0+3,6]\n return %y\n}"},
      {"mean",
       "graph @f(%x: f32[2,s0,6]) {\n %y = mean %x {dim=[-1], keepdim=true} : f32[2,s0,1]\n %z = sum %x {dim=[2]} : f32[2,s0]\n return %y, "
       "%z\n}"},
      {"rms_norm",
       "constant @w : f32[16] = external\ngraph @f(%x: f32[1,s0,16]) {\n %w = const @w : f32[16]\n %y = rms_norm %x, %w {eps=1e-05} : "
       "f32[1,s0,16]\n return %y\n}"},
      {"rope", "graph @f(%x: f32[1,3,s0,8], %c: f32[s0,8], %s: f32[1,1,s0,8]) {\n %y = rope %x, %c, %s : f32[1,3,s0,8]\n return %y\n}"},
      {"attention",
       "graph @f(%q: f32[2,3,s0,8], %k: f32[2,3,s1,8], %v: f32[2,3,s1,4]) {\n %y = attention %q, %k, %v, _, _ : f32[2,3,s0,4]\n return "
       "%y\n}"},
      {"attention_mask",
       "graph @f(%q: f32[1,2,s0,8], %k: f32[1,2,12,8], %v: f32[1,2,12,8], %m: f32[s0,12]) {\n"
       " %y = attention %q, %k, %v, %m, _ {scale=0.3} : f32[1,2,s0,8]\n return %y\n}"},
      {"attention_grouped",
       "graph @f(%q: f32[1,6,s0,8], %k: f32[1,2,12,8], %v: f32[1,2,12,8], %m: f32[1,1,s0,12]) {\n"
       " %y = attention %q, %k, %v, %m, _ : f32[1,6,s0,8]\n return %y\n}"},
      {"attention_grouped_no_mask",
       "graph @f(%q: f32[1,6,s0,8], %k: f32[1,2,12,8], %v: f32[1,2,12,4]) {\n %y = attention %q, %k, %v, _, _ : f32[1,6,s0,4]\n return "
       "%y\n}"},
      {"attention_grouped_symbolic_keys",
       "graph @f(%q: f32[1,6,s0,8], %k: f32[1,2,s0,8], %v: f32[1,2,s0,8], %m: f32[s0,s0]) {\n"
       " %y = attention %q, %k, %v, %m, _ : f32[1,6,s0,8]\n return %y\n}"},
      {"attention_causal",
       "graph @f(%q: f32[s0,2,5,8], %k: f32[s0,2,5,8], %v: f32[s0,2,5,8]) {\n"
       " %y = attention %q, %k, %v, _, _ {is_causal=true} : f32[s0,2,5,8]\n return %y\n}"},
      {"convolution",
       "constant @w : f32[6,3,3,2] = external\nconstant @b : f32[6] = external\ngraph @f(%x: f32[s0,3,8,9]) {\n %w = const @w : "
       "f32[6,3,3,2]\n"
       " %b = const @b : f32[6]\n %y = convolution %x, %w, %b {stride=[2,1], padding=[1,2], dilation=[1,1], transposed=false, "
       "output_padding=[0,0], groups=1} "
       ": f32[s0,6,4,12]\n %r = relu %y : f32[s0,6,4,12]\n return %r\n}"},
      {"convolution_groups",
       "constant @w : f32[6,2,3,3] = external\ngraph @f(%x: f32[s0,4,8,9]) {\n %w = const @w : f32[6,2,3,3]\n"
       " %y = convolution %x, %w, _ {stride=[1,1], padding=[2,2], dilation=[2,2], transposed=false, output_padding=[0,0], groups=2} "
       ": f32[s0,6,8,9]\n return %y\n}"},
      {"convolution_depthwise",
       "constant @w : f32[8,1,3,3] = external\nconstant @b : f32[8] = external\ngraph @f(%x: f32[s0,4,8,9]) {\n %w = const @w : "
       "f32[8,1,3,3]\n"
       " %b = const @b : f32[8]\n %y = convolution %x, %w, %b {stride=[2,2], padding=[1,1], dilation=[1,1], transposed=false, "
       "output_padding=[0,0], groups=4} "
       ": f32[s0,8,4,5]\n return %y\n}"},
      {"convolution_transposed",
       "constant @w : f32[4,3,3,2] = external\nconstant @b : f32[6] = external\ngraph @f(%x: f32[s0,4,5,6]) {\n %w = const @w : "
       "f32[4,3,3,2]\n"
       " %b = const @b : f32[6]\n %y = convolution %x, %w, %b {stride=[2,2], padding=[1,0], dilation=[1,1], transposed=true, "
       "output_padding=[1,0], groups=2} "
       ": f32[s0,6,10,12]\n return %y\n}"},
      {"convolution_1d",
       "constant @w : f32[5,3,4] = external\nconstant @b : f32[5] = external\ngraph @f(%x: f32[1,3,s0+3]) {\n %w = const @w : f32[5,3,4]\n"
       " %b = const @b : f32[5]\n %y = convolution %x, %w, %b {stride=[1], padding=[0], dilation=[1], transposed=false, "
       "output_padding=[0], groups=1} "
       ": f32[1,5,s0]\n %g = gelu %y : f32[1,5,s0]\n return %g\n}"},
      {"max_pool",
       "graph @f(%x: f32[s0,3,8,9]) {\n %y, %i = max_pool2d_with_indices %x {kernel_size=[3,2], stride=[2,2], padding=[1,0], "
       "dilation=[1,1], ceil_mode=true} "
       ": f32[s0,3,5,5], i64[s0,3,5,5]\n return %y\n}"},
      {"avg_pool",
       "graph @f(%x: f32[s0,3,8,9]) {\n %y = avg_pool2d %x {kernel_size=[3,3], stride=[1,2], padding=[1,1], ceil_mode=false, "
       "count_include_pad=true} "
       ": f32[s0,3,8,5]\n %z = avg_pool2d %x {kernel_size=[2,3], padding=[1,1], count_include_pad=false} : f32[s0,3,5,3]\n return %y, "
       "%z\n}"},
      {"mean_spatial",
       "graph @f(%x: f32[s0,3,8,9]) {\n %y = mean %x {dim=[2,3], keepdim=true} : f32[s0,3,1,1]\n %z = mean %x {dim=[-1,-2]} : f32[s0,3]\n "
       "return %y, %z\n}"},
      {"convolution_chain",
       "constant @w : f32[4,3,3,3] = external\nconstant @m : f32[4,1,1] = external\nconstant @p : f32[1,4,1,1] = external\n"
       "graph @f(%x: f32[s0,3,8,8]) {\n %w = const @w : f32[4,3,3,3]\n %m = const @m : f32[4,1,1]\n %p = const @p : f32[1,4,1,1]\n"
       " %y = convolution %x, %w, _ {stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=1} : "
       "f32[s0,4,8,8]\n"
       " %a = mul %y, %m : f32[s0,4,8,8]\n %b = add %a, %p : f32[s0,4,8,8]\n %r = relu %b : f32[s0,4,8,8]\n"
       " %q, %i = max_pool2d_with_indices %r {kernel_size=[2,2]} : f32[s0,4,4,4], i64[s0,4,4,4]\n"
       " %c = cat %q, %q {dim=1} : f32[s0,8,4,4]\n %v = view %c {size=[s0,128]} : f32[s0,128]\n return %v, %r\n}"},
      {"outputs",
       "constant @c : f32[3] = external\ngraph @f(%x: f32[s0,3]) {\n %c = const @c : f32[3]\n %y = relu %x : f32[s0,3]\n return %x, %y, "
       "%y, %c\n}"},
  };
  return cases;
}

class LowerTest : public testing::TestWithParam<size_t> {};

TEST_P(LowerTest, MatchesTheInterpreter) { ExpectMatches(Cases()[GetParam()]); }

INSTANTIATE_TEST_SUITE_P(All, LowerTest, testing::Range(size_t{0}, Cases().size()),
                         [](const auto& info) { return Cases()[info.param].name; });

TEST(LowerNodes, ViewsAndPermutationsOfOnesAreOneReshape) {
  const Case c{"ones", "graph @f(%x: f32[1,s0,1,6]) {\n %a = permute %x {dims=[2,1,3,0]} : f32[1,s0,6,1]\n %b = view %a {size=[s0,2,3]} : f32[s0,2,3]\n"
                       " %c = view %b {size=[s0,3,2]} : f32[s0,3,2]\n return %c\n}"};
  Harness h(c);
  Status s = h.Load();
  ASSERT_TRUE(s.ok()) << s.ToString();
  EXPECT_EQ(h.NodeKinds(), (std::vector<std::string>{"XNNStaticReshape"}));
  EXPECT_EQ(h.Run(5, 1), "");
  EXPECT_EQ(h.Run(1, 1), "");
}

TEST(LowerRefuses, WithReasons) {
  ExpectRefused("graph @f(%x: f16[2]) {\n %y = relu %x : f16[2]\n return %y\n}", "only f32");
  ExpectRefused("graph @f(%x: f32[s0,s1,4]) {\n %y = view %x {size=[s0,s1,2,2]} : f32[s0,s1,2,2]\n return %y\n}",
                "at most one size may be symbolic");
  ExpectRefused("graph @f(%x: f32[s0,4]) {\n %y = slice %x {dim=1, step=2} : f32[s0,2]\n return %y\n}", "step 2");
  ExpectRefused("graph @f(%x: f32[2,s0]) {\n %y = pow %x {exponent=2.5} : f32[2,s0]\n return %y\n}", "power of 2.5");
  ExpectRefused("graph @f(%x: f32[2,s0]) {\n %y = mean %x {dim=[1]} : f32[2]\n return %y\n}", "must be a constant");
  ExpectRefused(
      "graph @f(%q: f32[1,2,s0,8], %k: f32[1,2,12,8], %m: bool[s0,12]) {\n %y = attention %q, %k, %k, %m, _ : f32[1,2,s0,8]\n return %y\n}",
      "bool mask");
  ExpectRefused(
      "graph @f(%x: f32[2,3,8,8]) {\n %y, %i = max_pool2d_with_indices %x {kernel_size=[2,2]} : f32[2,3,4,4], i64[2,3,4,4]\n return %y, "
      "%i\n}",
      "indices are used");
  ExpectRefused("graph @f(%x: i64[2]) {\n %y = arange {start=0, end=4, out_dtype=i64} : i64[4]\n return %y\n}", "no operator for arange");
}

TEST(Delegate, SharesPackedWeights) {
  const Case c = {"shared",
                  "constant @w : f32[512,256] = external\ngraph @f(%x: f32[s0,256]) {\n %w = const @w : f32[512,256]\n"
                  " %y = linear %x, %w, _ : f32[s0,512]\n return %y\n}"};
  constexpr size_t kWeight = 512 * 256 * 4;
  Harness h(c);
  const uint64_t before = GetXnnpackMemory().bytes;
  ASSERT_TRUE(h.Load().ok());
  ASSERT_EQ(h.lowered().shared.size(), 1u);
  EXPECT_LT(h.lowered().payload.size(), kWeight);
  EXPECT_EQ(h.released(), kWeight);
  const uint64_t one = GetXnnpackMemory().bytes;
  EXPECT_GE(one, before + kWeight);
  auto second = h.Create();
  ASSERT_TRUE(second.ok());
  EXPECT_LT(GetXnnpackMemory().bytes, one + kWeight / 2);
  EXPECT_EQ(h.Run(4, 1), "");
}

// The second delegate's scratch memory is larger, so that of the Method moves; the first must not write to the old place.
TEST(Delegate, SharedScratchMemoryMayMove) {
  const auto chain = [](int64_t width) {
    const std::string t = StrCat("f32[s0,", width, "]");
    return StrCat("graph @f(%x: ", t, ") {\n %a = exp %x : ", t, "\n %b = sigmoid %a : ", t, "\n %c = mul %b, %x : ", t,
                  "\n %d = mul %c, %a : ", t, "\n return %d\n}");
  };
  Harness small({"small", chain(4)}), large({"large", chain(512)});
  ASSERT_TRUE(small.Load().ok());
  OwnedTensor x = OwnedTensor::Make(TensorType(DType::kF32, {9, 4})), y = OwnedTensor::Make(TensorType(DType::kF32, {9, 4}));
  Fill(x.view(), 3, true);
  const TensorView in[] = {x.view()};
  TensorView out[] = {y.view()};
  ASSERT_TRUE(small.delegate().Execute(in, out).ok());
  const std::vector<float> want(y.view().as<float>(), y.view().as<float>() + 36);
  large.method_shared = std::move(small.method_shared);
  ASSERT_TRUE(large.Load().ok());
  EXPECT_EQ(large.Run(9, 1), "");
  for (int i = 0; i < 36; ++i) y.view().as<float>()[i] = 0;
  ASSERT_TRUE(small.delegate().Execute(in, out).ok());
  for (size_t i = 0; i < 36; ++i) EXPECT_EQ(y.view().as<float>()[i], want[i]);
  EXPECT_EQ(large.Run(5, 1), "");
  small.Unload();
}

TEST(Delegate, RefusesSizesBeyondTheBounds) {
  const Case c = {"bounds", Unary("relu")};
  Harness h(c);
  ASSERT_TRUE(h.Load().ok());
  OwnedTensor x = OwnedTensor::Make(TensorType(DType::kF32, {2, 10, 5})), y = OwnedTensor::Make(TensorType(DType::kF32, {2, 10, 5}));
  const TensorView in[] = {x.view()};
  TensorView out[] = {y.view()};
  const Status s = h.delegate().Execute(in, out);
  EXPECT_EQ(s.code(), Code::kOutOfRange);
  EXPECT_NE(std::string(s.message()).find("dim 1 of argument 0 is 10; at most 9"), std::string::npos) << s.ToString();
  EXPECT_EQ(h.Run(9, 1), "");
}

TEST(Worthwhile, NeedsWork) {
  const Module m =
      ParseText(Whole("graph @f(%x: f32[2,s0]) {\n %a = view %x {size=[1,2,s0]} : f32[1,2,s0]\n %b = neg %a : f32[1,2,s0]\n"
                      " %c = abs %b : f32[1,2,s0]\n %d = exp %c : f32[1,2,s0]\n return %d\n}"));
  const Graph& g = *m.graphs[0];
  const std::span<const NodeId> nodes = g.order;
  EXPECT_FALSE(XnnpackBackend().worthwhile(m, g, nodes.first(1)));
  EXPECT_FALSE(XnnpackBackend().worthwhile(m, g, nodes.first(3)));
  EXPECT_TRUE(XnnpackBackend().worthwhile(m, g, nodes));
}

}  // namespace
}  // namespace dovetail
