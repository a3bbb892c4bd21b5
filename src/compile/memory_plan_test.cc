#include "compile/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace dovetail {
namespace {

constexpr uint64_t kAlignment = 64;

uint64_t Padded(uint64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

bool AliveTogether(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

// Byte by byte and instruction by instruction: what PlanMemory promises.
void Check(const std::vector<Lifetime>& buffers, const MemoryPlan& plan) {
  uint64_t end = 0, most = 0;
  size_t last = 0;
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(buffers[i].offset % kAlignment, 0u);
    end = std::max(end, buffers[i].offset + Padded(buffers[i].size));
    last = std::max(last, buffers[i].last);
    for (size_t j = i + 1; j < buffers.size(); ++j) {
      if (!AliveTogether(buffers[i], buffers[j])) continue;
      EXPECT_TRUE(buffers[i].offset + buffers[i].size <= buffers[j].offset || buffers[j].offset + buffers[j].size <= buffers[i].offset)
          << "buffers " << i << " and " << j << " overlap at " << buffers[i].offset << " and " << buffers[j].offset;
    }
  }
  for (size_t at = 0; at <= last; ++at) {
    uint64_t alive = 0;
    for (const Lifetime& b : buffers)
      if (b.first <= at && at <= b.last) alive += Padded(b.size);
    most = std::max(most, alive);
  }
  EXPECT_EQ(plan.peak, end);
  EXPECT_EQ(plan.lower_bound, most);
  EXPECT_GE(plan.peak, plan.lower_bound);
}

TEST(MemoryPlan, NothingNeedsNothing) {
  std::vector<Lifetime> none;
  const MemoryPlan plan = PlanMemory(none, kAlignment);
  EXPECT_EQ(plan.peak, 0u);
  EXPECT_EQ(plan.lower_bound, 0u);
}

TEST(MemoryPlan, AChainNeedsTwoBuffers) {
  std::vector<Lifetime> chain;
  for (size_t i = 0; i < 10; ++i) chain.push_back({1000, i, i + 1});
  const MemoryPlan plan = PlanMemory(chain, kAlignment);
  Check(chain, plan);
  EXPECT_EQ(plan.peak, 2 * 1024u);
}

TEST(MemoryPlan, FillsTheGapThatFits) {
  // The two large ones stand apart in time from the small ones between them.
  std::vector<Lifetime> buffers = {{640, 0, 2}, {640, 2, 4}, {64, 0, 1}, {128, 3, 4}, {512, 3, 4}};
  const MemoryPlan plan = PlanMemory(buffers, kAlignment);
  Check(buffers, plan);
  EXPECT_EQ(plan.peak, plan.lower_bound);
}

TEST(MemoryPlan, BuffersAliveInOneInstructionOnlyMeetThere) {
  std::vector<Lifetime> buffers = {{64, 3, 3}, {64, 3, 3}, {64, 4, 4}};
  const MemoryPlan plan = PlanMemory(buffers, kAlignment);
  Check(buffers, plan);
  EXPECT_EQ(plan.peak, 128u);
}

TEST(MemoryPlan, NeverLetsLiveBuffersOverlap) {
  std::mt19937 random(1);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  for (int round = 0; round < 500; ++round) {
    std::vector<Lifetime> buffers(below(60));
    const size_t instructions = 1 + below(40), longest = 1 + below(20), largest = 1 + below(5000);
    for (Lifetime& b : buffers) {
      b.size = below(8) == 0 ? 0 : below(largest);
      b.first = below(instructions);
      b.last = b.first + below(longest);
    }
    Check(buffers, PlanMemory(buffers, kAlignment));
    if (HasFailure()) return;
  }
}

// What a greedy plan costs over the bound, on lifetimes like a network's: short ones, and a few that live long.
TEST(MemoryPlan, StaysNearTheLowerBound) {
  std::mt19937 random(2);
  uint64_t peak = 0, bound = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<Lifetime> buffers;
    for (size_t i = 0; i < 200; ++i) buffers.push_back({uint64_t{1} << (6 + random() % 8), i, i + 1 + (random() % 10 == 0 ? random() % 30 : random() % 3)});
    const MemoryPlan plan = PlanMemory(buffers, kAlignment);
    peak += plan.peak;
    bound += plan.lower_bound;
  }
  EXPECT_LT(static_cast<double>(peak), 1.1 * static_cast<double>(bound));
}

}  // namespace
}  // namespace dovetail
