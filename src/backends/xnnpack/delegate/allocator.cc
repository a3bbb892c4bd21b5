#include "backends/xnnpack/delegate/allocator.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <xnnpack.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <mutex>

#include "backends/xnnpack/delegate/block_tiles.h"
#include "backends/xnnpack/delegate/depthwise_kernels.h"
#include "backends/xnnpack/delegate/float_kernels.h"
#include "backends/xnnpack/delegate/narrow_kernels.h"
#include "backends/xnnpack/delegate/row_kernels.h"

namespace dovetail {
namespace {

// Stands right before each block.
struct Header {
  void* base;
  size_t capacity;
};
constexpr size_t kMinAlignment = 64, kHugePage = size_t{2} << 20;
static_assert(sizeof(Header) <= kMinAlignment);

// Small blocks are kept for reuse when freed: XNNPACK takes and frees bookkeeping memory each time it plans its workspace, which
// it does again and again while sizes alternate. The address sanitizer gets a block of its own for each request, or it would name the first
// one to use the memory as the one that leaks it; only the count is kept then.
#ifdef __SANITIZE_ADDRESS__
constexpr bool kKeepsMemory = false;
#else
constexpr bool kKeepsMemory = true;
#endif
constexpr size_t kMinKeptLog2 = 6, kMaxKeptLog2 = 18, kKeptPerSize = 16;
struct Kept {
  std::array<void*, kKeptPerSize> blocks{};
  size_t count = 0;
};

std::mutex mutex;
XnnpackMemory memory;                                    // guarded by mutex
std::array<Kept, kMaxKeptLog2 - kMinKeptLog2 + 1> kept;  // guarded by mutex

Header& HeaderOf(void* p) { return static_cast<Header*>(p)[-1]; }
bool IsKeptSize(size_t capacity) {
  return capacity >> kMinKeptLog2 && capacity <= size_t{1} << kMaxKeptLog2 && std::has_single_bit(capacity);
}
Kept& KeptOf(size_t capacity) { return kept[static_cast<size_t>(std::countr_zero(capacity)) - kMinKeptLog2]; }

void* Allocate(size_t size, size_t alignment) {
  if (size > SIZE_MAX / 2 || alignment > kHugePage) return nullptr;
  alignment = std::max(alignment, kMinAlignment);
  size_t capacity = std::max(size, size_t{1} << kMinKeptLog2);
  bool is_kept = false;
  if (alignment == kMinAlignment && capacity <= size_t{1} << kMaxKeptLog2) {
    capacity = std::bit_ceil(capacity);
    const std::lock_guard lock(mutex);
    if (Kept& k = KeptOf(capacity); k.count > 0) {
      --k.count;
      is_kept = true;
      if (kKeepsMemory) {
        ++memory.requests;
        return k.blocks[k.count];
      }
    }
  }
  const size_t offset = alignment, total = offset + capacity;
  void* base = nullptr;
  if (posix_memalign(&base, std::max(alignment, total >= 2 * kHugePage ? kHugePage : size_t{1}), total) != 0) return nullptr;
  if (total >= 2 * kHugePage) madvise(base, total, MADV_HUGEPAGE);
  void* p = static_cast<std::byte*>(base) + offset;
  HeaderOf(p) = {base, capacity};
  const std::lock_guard lock(mutex);
  ++memory.requests;
  if (!is_kept) {
    ++memory.allocations;
    memory.bytes += capacity;
  }
  return p;
}

void Free(void* p) {
  if (!p) return;
  const Header h = HeaderOf(p);
  bool is_kept = false;
  {
    const std::lock_guard lock(mutex);
    // A kept block must be aligned like every other of its size.
    if (IsKeptSize(h.capacity) && static_cast<std::byte*>(p) - static_cast<std::byte*>(h.base) == kMinAlignment) {
      if (Kept& k = KeptOf(h.capacity); k.count < kKeptPerSize) {
        k.blocks[k.count++] = p;
        is_kept = true;
      }
    }
    if (!is_kept) memory.bytes -= h.capacity;
  }
  if (is_kept && kKeepsMemory) return;
  free(h.base);
}

void* Reallocate(void* p, size_t size) {
  if (p && HeaderOf(p).capacity >= size) return p;
  void* grown = Allocate(size, kMinAlignment);
  if (grown && p) {
    std::memcpy(grown, p, HeaderOf(p).capacity);
    Free(p);
  }
  return grown;
}

constexpr xnn_allocator kAllocator = {
    .context = nullptr,
    .allocate = [](void*, size_t size) { return Allocate(size, kMinAlignment); },
    .reallocate = [](void*, void* p, size_t size) { return Reallocate(p, size); },
    .deallocate = [](void*, void* p) { Free(p); },
    .aligned_allocate = [](void*, size_t alignment, size_t size) { return Allocate(size, alignment); },
    .aligned_deallocate = [](void*, void* p) { Free(p); },
};

}  // namespace

XnnpackMemory GetXnnpackMemory() {
  const std::lock_guard lock(mutex);
  return memory;
}

Status InitializeXnnpack() {
  static const xnn_status status = [] {
    const xnn_status s = xnn_initialize(&kAllocator);
    if (s == xnn_status_success) {
      UseRowKernels();
      UseDepthwiseKernels();
      UseNarrowKernels();
      UseBlockTiles();
      UseFloatKernels();
    }
    return s;
  }();
  if (status == xnn_status_success) return OkStatus();
  if (status == xnn_status_unsupported_hardware) return Unsupported("XNNPACK does not run on this processor");
  return Internal("XNNPACK failed to start (status ", static_cast<int>(status), ")");
}

void CountPackedWeights(int64_t bytes) {
  const std::lock_guard lock(mutex);
  memory.bytes += static_cast<uint64_t>(bytes);
}

void* XnnpackAllocate(size_t size, size_t alignment) { return Allocate(size, alignment); }
void XnnpackFree(void* p) { Free(p); }

}  // namespace dovetail
