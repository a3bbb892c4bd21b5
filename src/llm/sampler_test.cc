#include "llm/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

namespace dovetail {
namespace {
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Sampler, GreedyTakesTheLowestOfEqualLogitsAndNoNan) {
  auto sampler = Sampler::Create({});
  const float logits[] = {kNan, 1, 3, 3, 2};
  EXPECT_EQ(*sampler->Pick(logits), 2);
  const float broken[] = {kNan, kNan};
  EXPECT_NE(sampler->Pick(broken).status().message().find("none of the 2 logits"), std::string::npos);
}

TEST(Sampler, SameSeedSameTokens) {
  const float logits[] = {0.1f, 0.2f, 0.3f, 0.2f};
  auto a = Sampler::Create({.temperature = 1, .seed = 5}), b = Sampler::Create({.temperature = 1, .seed = 5}),
       c = Sampler::Create({.temperature = 1, .seed = 6});
  std::vector<int64_t> x, y, z;
  for (int i = 0; i < 50; ++i) {
    x.push_back(*a->Pick(logits));
    y.push_back(*b->Pick(logits));
    z.push_back(*c->Pick(logits));
  }
  EXPECT_EQ(x, y);
  EXPECT_NE(x, z);
}

TEST(Sampler, FollowsTheProbabilities) {
  const float logits[] = {std::log(0.5f), std::log(0.3f), std::log(0.2f)};
  auto sampler = Sampler::Create({.temperature = 1, .seed = 1});
  std::map<int64_t, int> count;
  for (int i = 0; i < 20000; ++i) ++count[*sampler->Pick(logits)];
  EXPECT_NEAR(count[0], 10000, 300);
  EXPECT_NEAR(count[1], 6000, 300);
  EXPECT_NEAR(count[2], 4000, 300);
}

TEST(Sampler, TopKAndTopPCutTheTail) {
  const float logits[] = {std::log(0.1f), std::log(0.4f), std::log(0.2f), std::log(0.3f)};
  auto k = Sampler::Create({.temperature = 1, .top_k = 2}), p = Sampler::Create({.temperature = 1, .top_p = 0.75});
  std::map<int64_t, int> from_k, from_p;
  for (int i = 0; i < 2000; ++i) {
    ++from_k[*k->Pick(logits)];
    ++from_p[*p->Pick(logits)];
  }
  EXPECT_EQ(from_k.size(), 2u);
  EXPECT_TRUE(from_k.contains(1) && from_k.contains(3));
  EXPECT_EQ(from_p.size(), 3u);  // 0.4 + 0.3 is not yet 0.75
  EXPECT_FALSE(from_p.contains(0));
}

TEST(Sampler, RefusesBadOptions) {
  EXPECT_FALSE(Sampler::Create({.temperature = -1}).ok());
  EXPECT_FALSE(Sampler::Create({.top_k = -1}).ok());
  EXPECT_FALSE(Sampler::Create({.top_p = 0}).ok());
  EXPECT_FALSE(Sampler::Create({.top_p = 1.5}).ok());
}

}  // namespace
}  // namespace dovetail
