// Lifetimes to offsets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dovetail {

// A buffer that is needed from instruction `first` to instruction `last`, both included. Sizes and offsets are in bytes.
struct Lifetime {
  uint64_t size = 0;
  size_t first = 0, last = 0;
  uint64_t offset = 0;  // filled in
};

struct MemoryPlan {
  uint64_t peak = 0;         // end of the highest buffer
  uint64_t lower_bound = 0;  // most bytes alive at one instruction: no plan can be smaller
};

// Greedy by size: the largest buffer first, each at the lowest offset where it overlaps no placed buffer alive at the same time
// (Pisarchyk & Lee, 2020). Offsets are multiples of `alignment`.
MemoryPlan PlanMemory(std::vector<Lifetime>& buffers, uint64_t alignment);

}  // namespace dovetail
