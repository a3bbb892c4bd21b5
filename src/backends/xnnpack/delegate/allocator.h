// The memory that XNNPACK takes: every allocation of the library, and the packed weights, go through here and are counted.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"

namespace dovetail {

struct XnnpackMemory {
  uint64_t allocations = 0;  // from the system, since the process began
  uint64_t requests = 0;     // the same, and blocks kept from earlier
  uint64_t bytes = 0;        // held now, blocks kept for reuse included
};
// Thread safe. Delegate::Execute leaves `allocations` as it is when the shapes were seen before.
XnnpackMemory GetXnnpackMemory();

// Starts the library with our allocator, once; cheap afterwards. Thread safe.
Status InitializeXnnpack();

// Private memory of packed weights that came from elsewhere (packed_weights.h) or, negative, went; it counts in `bytes`.
void CountPackedWeights(int64_t bytes);

// Uninitialized memory. Big blocks ask for huge pages,
// since decoding reads all weights once per token. Null when there is no memory. `alignment` is a power of two.
void* XnnpackAllocate(size_t size, size_t alignment = 64);
void XnnpackFree(void* p);

}  // namespace dovetail
