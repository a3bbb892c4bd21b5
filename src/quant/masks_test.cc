#include "quant/masks.h"

#include "quant/fixed_testing.h"

namespace dovetail {
namespace {

TEST(Masks, Saturate) {
  OwnedTensor visible = OwnedTensor::Make(TensorType(DType::kBool, {Dim(6), Dim(6)}));
  for (int64_t i = 0; i < 36; ++i) visible.view().as<uint8_t>()[i] = i % 6 <= i / 6;
  for (const std::string scheme : {"qnn-8a8w", "qnn-16a8w"})
    for (float low : {-INFINITY, -1e9f, -3.4028235e38f, -10000.0f}) {
      std::vector<float> mask(36);
      for (size_t i = 0; i < 36; ++i) mask[i] = i % 6 <= i / 6 ? 0 : low;
      for (const bool booleans : {false, true}) {
        std::vector<Fixed::Call> calls;
        for (unsigned i = 0; i < 4; ++i) calls.push_back({Rows(70 + i, 6, 16), Floats({Dim(6), Dim(6)}, mask), visible});
        const Fixed q(Masked(booleans ? "%b, _" : "%m, _"), scheme, calls);
        EXPECT_TRUE(q.report.warnings.empty()) << q.report.warnings[0];
        // The float model with a mask of -3.4e38 is the same as with -inf.
        EXPECT_GE(q.sqnr(calls[0]), scheme == "qnn-8a8w" ? 24 : 38) << scheme << " " << low << " " << booleans << "\n" << Print(q.after);
      }
    }
}

TEST(Masks, Constant) {
  std::vector<float> mask(36);
  for (size_t i = 0; i < 36; ++i) mask[i] = i % 6 <= i / 6 ? 0 : -1e9f;
  mask[6] = -0.5f;  // not of two values only
  std::string text = Masked("%mask, _");
  text.insert(text.find('\n') + 1, ConstantLine("mask", "6,6", mask));
  text.insert(text.find("    %wq = "), "    %mask = const @mask : f32[6,6]\n");
  const OwnedTensor none = OwnedTensor::Make(TensorType(DType::kBool, {Dim(6), Dim(6)}));
  std::vector<Fixed::Call> calls;
  for (unsigned i = 0; i < 4; ++i) calls.push_back({Rows(70 + i, 6, 16), Floats({Dim(6), Dim(6)}, std::vector<float>(36)), none});
  EXPECT_GE(Fixed(text, "qnn-8a8w", calls).sqnr(calls[0]), 24);
}

// A layer whose results leave the graph with a mask in place of some.
std::string MaskedOutput(float low, const std::string& masked) {
  return "module {\n" + ConstantLine("l.weight", "16,16", Normal(256, 1, 0.4f)) + ConstantLine("low", "", {low}) + ConstantLine("zero", "", {0}) + ConstantLine("two", "", {2}) +
         ConstantLine("half", "", {0.5f}) +
         R"(  graph @f(%x: f32[6,16], %b: bool[6,16]) {
    %w = const @l.weight : f32[16,16]
    %low = const @low : f32[]
    %zero = const @zero : f32[]
    %two = const @two : f32[]
    %half = const @half : f32[]
    %l = linear %x, %w, _ : f32[6,16]
)" + masked + "    return %y\n  }\n}\n";
}

std::vector<Fixed::Call> MaskedCalls() {
  std::vector<Fixed::Call> calls;
  for (unsigned i = 0; i < 4; ++i) {
    OwnedTensor hidden = OwnedTensor::Make(TensorType(DType::kBool, {Dim(6), Dim(16)}));
    for (int64_t k = 0; k < 96; ++k) hidden.view().as<uint8_t>()[k] = k % 3 == i % 3;
    calls.push_back({Rows(70 + i, 6, 16), hidden});
  }
  return calls;
}

// SQNR of what is not masked; what is comes out below all of it.
double ShownSqnr(const Fixed& q, const Fixed::Call& call) {
  auto want = RunOnce(q.before, call), got = RunOnce(q.after, call);
  EXPECT_TRUE(want.ok() && got.ok());
  const std::vector<float> all = Values((*want)[0]), made = Values((*got)[0]);
  std::vector<float> a, b;
  float masked = -INFINITY;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] < kMaskedFrom) {
      masked = std::max(masked, made[i]);
      continue;
    }
    a.push_back(all[i]);
    b.push_back(made[i]);
  }
  EXPECT_LT(masked, *std::min_element(b.begin(), b.end()));
  return Sqnr(a, b);
}

TEST(Masks, OfOutputsHaveNoPartInTheirRange) {
  const char* kForms[] = {"    %y = where %b, %low, %l : f32[6,16]\n",
                          "    %m = where %b, %low, %zero : f32[6,16]\n    %y = add %l, %m : f32[6,16]\n",
                          "    %h = where %b, %low, %l : f32[6,16]\n    %y = mul %h, %two : f32[6,16]\n",
                          "    %h = where %b, %low, %l : f32[6,16]\n    %y = div %h, %half : f32[6,16]\n"};
  for (const char* form : kForms)
    for (const std::string scheme : {"qnn-8a8w", "qnn-16a8w"})
      for (float low : {-INFINITY, -1e9f, -1e5f, -10000.0f}) {
        const Fixed q(MaskedOutput(low, form), scheme, MaskedCalls());
        EXPECT_GE(ShownSqnr(q, MaskedCalls()[0]), scheme == "qnn-8a8w" ? 24 : 38) << scheme << low << Print(q.after);
        ASSERT_EQ(q.report.warnings.size(), 1u) << form << low;
        EXPECT_NE(q.report.warnings[0].find("output 0 of @f, %y of "), std::string::npos) << q.report.warnings[0];
        EXPECT_NE(q.report.warnings[0].find("elements below -5000, -inf too, have no part of its range"), std::string::npos);
        EXPECT_NE(q.report.warnings[0].find("--keep-float 'l"), std::string::npos) << q.report.warnings[0];
      }
}

// The greatest element is none of the masked ones.
TEST(Masks, OfMaximaHaveNoPartInTheirRange) {
  const std::string greatest = "    %h = where %b, %low, %l : f32[6,16]\n    %y = amax %h {dim=[1],keepdim=false} : f32[6]\n";
  const Fixed q(MaskedOutput(-1e9f, greatest), "qnn-16a8w", MaskedCalls());
  EXPECT_TRUE(q.report.warnings.empty()) << q.report.warnings[0];
  EXPECT_GE(q.sqnr(MaskedCalls()[0]), 38);
}

// Other infinities of outputs.
TEST(Masks, InfiniteOutputsAreWarnedOf) {
  const Fixed q(MaskedOutput(INFINITY, "    %y = where %b, %low, %l : f32[6,16]\n"), "qnn-16a8w", MaskedCalls());
  ASSERT_FALSE(q.report.warnings.empty());
  EXPECT_NE(q.report.warnings[0].find("an output: infinities come back as an end of its range"), std::string::npos) << q.report.warnings[0];
}

// Divided by a temperature below 1.
TEST(Masks, OfScaledScoresHaveNoPartInTheirRange) {
  for (const std::string scheme : {"qnn-8a8w", "qnn-16a8w"}) {
    const std::string softmax = "    %h = where %b, %low, %l : f32[6,16]\n    %t = div %h, %half : f32[6,16]\n    %y = softmax %t {dim=1} : f32[6,16]\n";
    const Fixed q(MaskedOutput(-1e9f, softmax), scheme, MaskedCalls());
    EXPECT_TRUE(q.report.warnings.empty()) << q.report.warnings[0];
    EXPECT_GE(q.sqnr(MaskedCalls()[0]), scheme == "qnn-8a8w" ? 20 : 38) << Print(q.after);
  }
}

// Numbers as large as masks, from wherever they come.
TEST(Masks, GivenAsInputsAreWarnedOf) {
  std::string text = MaskedOutput(-1e9f, "    %y = add %l, %k : f32[6,16]\n");
  text.replace(text.find("%b: bool[6,16]"), 14, "%k: f32[6,16]");
  for (float low : {-1e9f, -1e4f}) {
    std::vector<Fixed::Call> calls;
    for (unsigned i = 0; i < 4; ++i) {
      std::vector<float> mask(96);
      for (size_t k = 0; k < mask.size(); ++k) mask[k] = (k + i) % 3 ? 0 : low;
      calls.push_back({Rows(70 + i, 6, 16), Floats({Dim(6), Dim(16)}, mask)});
    }
    const Fixed q(text, "qnn-8a8w", calls);
    ASSERT_EQ(q.report.warnings.size(), 1u) << low;
    EXPECT_NE(q.report.warnings[0].find("%y of add reaches from -1"), std::string::npos) << q.report.warnings[0];
    EXPECT_NE(q.report.warnings[0].find("masked_fill with -inf"), std::string::npos) << q.report.warnings[0];
  }
}

TEST(Masks, ComputedWithAreWarnedOf) {
  const Fixed q(MaskedOutput(-1e9f, "    %h = where %b, %low, %l : f32[6,16]\n    %y = mul %h, %l : f32[6,16]\n"), "qnn-16a8w", MaskedCalls());
  ASSERT_EQ(q.report.warnings.size(), 1u);
  EXPECT_NE(q.report.warnings[0].find("%y of mul is computed from masked elements"), std::string::npos) << q.report.warnings[0];
}

TEST(Masks, ValuesThatAreLowWithoutOneAreNot) {
  const OwnedTensor x = Rows(70, 6, 16, 1e4f);
  const Fixed q(MaskedOutput(-1e9f, "    %y = add %l, %x : f32[6,16]\n"), "qnn-16a8w", {{x, MaskedCalls()[0][1]}});
  EXPECT_TRUE(q.report.warnings.empty());
  EXPECT_GE(q.sqnr({x, MaskedCalls()[0][1]}), 54);
}

}  // namespace
}  // namespace dovetail
