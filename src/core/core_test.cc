#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/attr.h"
#include "core/tensor_type.h"

namespace dovetail {
namespace {

TEST(DimTest, CanonicalFormMakesEqualExpressionsEqual) {
  const Dim s = Dim::Symbol("s0"), t = Dim::Symbol("t");
  EXPECT_EQ(s + t, t + s);
  EXPECT_EQ((s + 1) * (s - 1), s * s - 1);
  EXPECT_EQ(s - s, Dim(0));
  EXPECT_EQ((s * 6).ToString(), "6*s0");
  EXPECT_EQ(Dim::FloorDiv(s * 6, 3), s * 2);
  EXPECT_EQ(Dim::FloorDiv(s + 1, 2).ToString(), "floordiv(s0+1,2)");
  EXPECT_EQ(Dim::DivideExact(s * t * 4, s * 2), t * 2);
  EXPECT_EQ(Dim::DivideExact(s + 1, s), std::nullopt);
}

TEST(DimTest, ParsesWhatItPrints) {
  for (const char* text : {"4", "s0", "2*s0+3", "s0*s1", "floordiv(s0+1,2)", "-s0+7", "mod(s0,4)", "max(s0,3)", "min(s1,5)", "-9223372036854775808"}) {
    auto d = Dim::Parse(text);
    ASSERT_TRUE(d.ok()) << text;
    EXPECT_EQ(d->ToString(), text);
  }
  for (const char* text : {"", "s0+", "(1", "floordiv(1,0)", "f(1,2)", "99999999999999999999", "1 2"}) EXPECT_FALSE(Dim::Parse(text).ok()) << text;
}

TEST(DimTest, EvaluatesAndBounds) {
  const Dim d = Dim::FloorDiv(Dim::Symbol("s0") * 3 + 1, 2);
  EXPECT_EQ(d.Evaluate([](std::string_view) { return std::optional<int64_t>(4); }), 6);
  EXPECT_EQ(d.Evaluate([](std::string_view) { return std::nullopt; }), std::nullopt);
  EXPECT_EQ(d.Bounds({{"s0", {1, 5}}}), (DimRange{2, 8}));
  EXPECT_EQ((Dim(0) - Dim::Symbol("s0")).Bounds({{"s0", {1, 5}}}), (DimRange{-5, -1}));
}

TEST(DimTest, BoundsHoldForNegativeNumbersAndWithoutABound) {
  const SymbolRanges ranges = {{"s", {1, DimRange::kUnbounded}}, {"t", {1, 10}}, {"u", {5, 10}}};
  const auto bounds = [&](const char* text) { return Dim::Parse(text)->Bounds(ranges); };
  EXPECT_EQ(bounds("floordiv(0-u,t)"), (DimRange{-10, -1}));
  EXPECT_EQ(bounds("mod(s,t-5)"), (DimRange{-3, 4}));
  EXPECT_EQ(bounds("s-1"), (DimRange{0, DimRange::kUnbounded}));
}

TEST(DimTest, HostileTextsAreRefusedOrHarmless) {
  std::string product = "(a+b+c+d+e+f+g+h)";
  for (int i = 0; i < 100; ++i) product += "*(a+b+c+d+e+f+g+h)";
  EXPECT_FALSE(Dim::Parse(product).ok());  // 10^12 terms when multiplied out
  EXPECT_TRUE(Dim::Parse("floordiv(0-9223372036854775807*s-s,0-s)").ok());
  EXPECT_EQ(Dim::Mod(INT64_MIN, 3), Dim(1));
  EXPECT_EQ(Dim::Mod(INT64_MIN, -1), Dim(0));
  EXPECT_EQ(Dim::Mod(7, -3), Dim(-2));
}

TEST(ShapeTest, Broadcast) {
  const Dim s = Dim::Symbol("s0");
  EXPECT_EQ(*Broadcast({1, s, 4}, {s, 1}), (Shape{1, s, 4}));
  EXPECT_FALSE(Broadcast({2, 3}, {4}).ok());
  EXPECT_FALSE(Broadcast({s}, {4}).ok());
}

TEST(DTypeTest, HalfRoundTripsEveryValue) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = HalfToFloat(static_cast<uint16_t>(h));
    if (std::isnan(f)) continue;
    EXPECT_EQ(FloatToHalf(f), h);
  }
  EXPECT_EQ(FloatToHalf(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7c00);
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(DTypeTest, PromotionFollowsTorch) {
  EXPECT_EQ(Promote(DType::kI64, DType::kF16), DType::kF16);
  EXPECT_EQ(Promote(DType::kF16, DType::kBF16), DType::kF32);
  EXPECT_EQ(Promote(DType::kU8, DType::kI8), DType::kI16);
  EXPECT_EQ(Promote(DType::kBool, DType::kI32), DType::kI32);
}

TEST(AttrTest, PrintsShortestDoubles) {
  EXPECT_EQ(Attr(1e-5).ToString(), "1e-05");
  EXPECT_EQ(Attr(2.0).ToString(), "2.0");
  EXPECT_EQ(Attr::Ints({1, 2}).ToString(), "[1,2]");
}

TEST(StatusTest, ChainReadsInsideOut) {
  Status s = InvalidArgument("bad ", 3).At("%x = add", "m.py:4").While("reading 'f'");
  s.Also(Unsupported("other"));
  EXPECT_EQ(s.ToString(), "bad 3\n  at %x = add\n  from m.py:4\n  while reading 'f'\nother");
  EXPECT_EQ(s.count(), 2u);
}

}  // namespace
}  // namespace dovetail
