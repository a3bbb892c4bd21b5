#include "quant/observer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <random>

#include "ops/quantization.h"

namespace dovetail {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Observer Of(std::vector<float> values) {
  Observer o;
  o.Add(values, 0);
  return o;
}
float RoundTrip(float v, const QuantParams& q) {
  return DequantizeElement(QuantizeElement(v, q.scale, q.zero_point, {-128, 127}), q.scale, q.zero_point);
}
std::vector<float> Normal(size_t n, unsigned seed, float scale = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> v(n);
  for (float& x : v) x = normal(random);
  return v;
}
double SquaredError(const std::vector<float>& values, const QuantParams& q) {
  double sum = 0;
  for (float v : values) sum += std::pow(static_cast<double>(v) - static_cast<double>(RoundTrip(v, q)), 2);
  return sum;
}

TEST(ParamsOf, EveryRangeHasUsableParameters) {
  const float big = 3e38f, tiny = 1e-42f;
  for (ValueRange r : {ValueRange{0, 0}, ValueRange{0, 3}, ValueRange{-3, 0}, ValueRange{-1, 1}, ValueRange{-big, big}, ValueRange{0, big},
                       ValueRange{-tiny, tiny}, ValueRange{2, 3}, ValueRange{-3, -2}, ValueRange{-1e-3f, 1e3f}, ValueRange{-1e3f, 1e-3f}}) {
    const QuantParams q = ParamsOf(r);
    EXPECT_GE(q.scale, FLT_MIN) << r.low << ".." << r.high;
    EXPECT_TRUE(std::isfinite(q.scale));
    EXPECT_GE(q.zero_point, -128);
    EXPECT_LE(q.zero_point, 127);
    EXPECT_EQ(RoundTrip(0, q), 0) << r.low << ".." << r.high;
    EXPECT_LE(RangeOfParams(q).low, r.low / 2 + q.scale) << r.low << ".." << r.high;
  }
}

// Which side a range lies on; what is constant comes back.
TEST(Observer, ConstantsComeBack) {
  for (float v : {3.0f, -3.0f, 1e-30f, -1e30f, 0.0f}) {
    const Observer o = Of(std::vector<float>(100, v));
    for (ValueRange r : {o.FullRange(), o.MeanRange(), o.MseRange(), o.PercentileRange(1e-3)})
      EXPECT_NEAR(RoundTrip(v, ParamsOf(r)), v, std::abs(v) * 0.01f) << v;
  }
}

TEST(Observer, NotFiniteIsCountedAndIgnored) {
  Observer clean, o;
  const std::vector<float> values = {1, -2, 3, 0};
  clean.Add(values, 0);
  o.Add(values, 0);
  EXPECT_EQ(o.first_bad_call(), SIZE_MAX);
  o.Add(std::vector<float>{NAN, kInfinity, -kInfinity}, 7);
  o.Add(std::vector<float>{NAN}, 5);
  EXPECT_EQ(o.nans(), 2u);
  EXPECT_EQ(o.infinities(), 2u);
  EXPECT_EQ(o.finite(), 4u);
  EXPECT_EQ(o.first_bad_call(), 5u);
  EXPECT_EQ(o.FullRange(), clean.FullRange());
  EXPECT_EQ(o.MeanRange(), clean.MeanRange());
  EXPECT_EQ(o.MseRange(), clean.MseRange());
}

TEST(Observer, NothingSeen) {
  for (const Observer& o : {Observer(), Of({}), Of({NAN}), Of({0, 0})}) {
    for (ValueRange r : {o.FullRange(), o.MeanRange(), o.MseRange(), o.PercentileRange(0.01)}) EXPECT_EQ(r, ValueRange());
  }
}

// Any cut of the calls, merged in any order, gives the same observer, whatever the ranges of the parts.
TEST(Observer, MergesInAnyOrder) {
  std::vector<std::vector<float>> calls;
  for (unsigned i = 0; i < 12; ++i) calls.push_back(Normal(50 + i, i, std::ldexp(1.0f, static_cast<int>(i * 7 % 12) - 6)));
  calls.push_back({0, 0});
  calls.push_back({});
  calls.push_back({-1e-30f, 1e-30f, NAN});
  calls.push_back({-64, 64, 32});
  Observer whole;
  for (size_t i = 0; i < calls.size(); ++i) whole.Add(calls[i], i);
  std::mt19937 random(1);
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<size_t> order(calls.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    std::vector<Observer> shards(trial < 10 ? calls.size() : 1 + static_cast<size_t>(trial) % 5);
    for (size_t i = 0; i < order.size(); ++i) shards[i % shards.size()].Add(calls[order[i]], order[i]);
    Observer merged;
    for (const Observer& s : shards) merged.Merge(s);
    EXPECT_EQ(merged.FullRange(), whole.FullRange());
    EXPECT_EQ(merged.MseRange(), whole.MseRange());
    for (double tail : {0.01, 0.1, 0.3, 0.45}) EXPECT_EQ(merged.PercentileRange(tail), whole.PercentileRange(tail)) << tail;
    EXPECT_EQ(merged.finite(), whole.finite());
    EXPECT_EQ(merged.first_bad_call(), whole.first_bad_call());
    EXPECT_NEAR(merged.MeanRange().low, whole.MeanRange().low, 1e-6);
    EXPECT_NEAR(merged.MeanRange().high, whole.MeanRange().high, 1e-6);
  }
}

TEST(Observer, MeanRangeIsOfCalls) {
  Observer o;
  o.Add(std::vector<float>{-1, 2}, 0);
  o.Add(std::vector<float>{-3, 6}, 1);
  EXPECT_EQ(o.MeanRange(), (ValueRange{-2, 4}));
}

TEST(Observer, PercentileLeavesOutTheTails) {
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 1000 - 0.5f;
  values.push_back(100);
  values.push_back(-50);
  const ValueRange r = Of(values).PercentileRange(0.002);
  EXPECT_NEAR(r.low, -0.5, 0.1);
  EXPECT_NEAR(r.high, 0.5, 0.1);
  EXPECT_EQ(Of(values).PercentileRange(0), (ValueRange{-50, 100}));
}

// Never worse than the full range by what is measured on the elements themselves, and clearly better where there are outliers.
TEST(Observer, MseRangeHasTheLeastError) {
  for (unsigned seed = 0; seed < 6; ++seed) {
    std::vector<float> values = Normal(20000, seed);
    if (seed % 2) std::transform(values.begin(), values.end(), values.begin(), [](float v) { return std::max(v, 0.0f); });
    if (seed % 3 == 0) values[0] = 12;
    const Observer o = Of(values);
    const double full = SquaredError(values, ParamsOf(o.FullRange())), mse = SquaredError(values, ParamsOf(o.MseRange()));
    EXPECT_LE(mse, full * 1.01) << seed;
    double best = full;
    for (float part = 1; part > 0.2f; part -= 0.01f)
      best = std::min(best, SquaredError(values, ParamsOf({o.FullRange().low * part, o.FullRange().high * part})));
    EXPECT_LE(mse, best * 1.03) << seed;
  }
  std::vector<float> values = Normal(200000, 9);
  values[0] = 30;
  const Observer o = Of(values);
  EXPECT_LT(SquaredError(values, ParamsOf(o.MseRange())), 0.8 * SquaredError(values, ParamsOf(o.FullRange())));
}

// What a few elements far out are does not count.
TEST(Observer, MostElementsAreWithoutTheFarthest) {
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 2 ? 3 : -3;
  const double plain = 10 * std::log10(9 * 12 / 0.25);
  EXPECT_NEAR(Of(values).MostElements(0.5), plain, 0.1);
  for (size_t i = 0; i < 50; ++i) values[i * 20] = i % 2 ? 40.0f : -40.0f;
  EXPECT_NEAR(Of(values).MostElements(0.5), plain, 0.3);
  EXPECT_GE(Of(values).QuietCalls(0.5), plain + 8);
  values[1] = 40;
  EXPECT_GT(Of(values).MostElements(0.5), plain + 0.5);
  EXPECT_EQ(Of({0, 0}).MostElements(0.5), INFINITY);
}

}  // namespace
}  // namespace dovetail
