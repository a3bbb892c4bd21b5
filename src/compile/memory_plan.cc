#include "compile/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace dovetail {

MemoryPlan PlanMemory(std::vector<Lifetime>& buffers, uint64_t alignment) {
  MemoryPlan plan;
  auto padded = [alignment](uint64_t n) { return (n + alignment - 1) / alignment * alignment; };
  std::map<size_t, int64_t> change;
  for (const Lifetime& b : buffers) {
    change[b.first] += static_cast<int64_t>(padded(b.size));
    change[b.last + 1] -= static_cast<int64_t>(padded(b.size));
  }
  int64_t alive = 0;
  for (const auto& [at, delta] : change) plan.lower_bound = std::max(plan.lower_bound, static_cast<uint64_t>(alive += delta));

  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return buffers[a].size > buffers[b].size; });
  std::vector<size_t> placed;  // sorted by offset
  for (size_t i : order) {
    Lifetime& b = buffers[i];
    uint64_t offset = 0;
    for (size_t j : placed) {
      const Lifetime& p = buffers[j];
      if (p.last < b.first || b.last < p.first) continue;
      if (offset + padded(b.size) <= p.offset) break;
      offset = std::max(offset, p.offset + padded(p.size));
    }
    b.offset = offset;
    placed.insert(std::upper_bound(placed.begin(), placed.end(), offset, [&](uint64_t o, size_t j) { return o < buffers[j].offset; }), i);
    plan.peak = std::max(plan.peak, offset + padded(b.size));
  }
  return plan;
}

}  // namespace dovetail
