// Work in parallel on a pthreadpool. How it is cut depends on sizes only, so results do not depend on the number of threads.
#pragma once

#include <pthreadpool.h>
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace dovetail {

#ifdef __SANITIZE_THREAD__
// The pool is built without the sanitizer, which therefore doesn't see that all items come after the call and before its return. It is
// told just these two orders: none between items, whose races must be found.
class ItemOrder {
 public:
  void BeforeAll() { __tsan_release(&begun_); }
  void BeforeItem() { __tsan_acquire(&begun_); }
  void AfterItem() { __tsan_release(&done_); }
  void AfterAll() { __tsan_acquire(&done_); }

 private:
  char begun_ = 0, done_ = 0;
};
#else
struct ItemOrder {
  void BeforeAll() {}
  void BeforeItem() {}
  void AfterItem() {}
  void AfterAll() {}
};
#endif

// fn(i) for every i < n, in any order and on any thread; on the caller's where `pool` is null.
template <class Fn>
void ParallelFor(struct pthreadpool* pool, int64_t n, const Fn& fn) {
  if (n <= 1 || !pool) {
    for (int64_t i = 0; i < n; ++i) fn(i);
    return;
  }
  struct Items {
    const Fn& fn;
    ItemOrder order;
  } items{fn, {}};
  items.order.BeforeAll();
  pthreadpool_parallelize_1d(
      pool,
      [](void* context, size_t i) {
        Items& of = *static_cast<Items*>(context);
        of.order.BeforeItem();
        of.fn(static_cast<int64_t>(i));
        of.order.AfterItem();
      },
      &items, static_cast<size_t>(n), 0);
  items.order.AfterAll();
}

// fn(begin, end) for ranges of `grain` items (the last may be shorter) that cover 0..n.
template <class Fn>
void ParallelRanges(struct pthreadpool* pool, int64_t n, int64_t grain, const Fn& fn) {
  ParallelFor(pool, (n + grain - 1) / grain, [&](int64_t i) { fn(i * grain, std::min(n, (i + 1) * grain)); });
}

// Elements of simple arithmetic, and bytes to copy, that are worth waking a thread for.
inline constexpr int64_t kGrainElements = 16384;
inline constexpr int64_t kGrainBytes = 256 * 1024;

// So many items of `size` elements (or bytes) as make up a grain; at least one.
inline int64_t GrainOf(int64_t size, int64_t grain = kGrainElements) { return std::max<int64_t>(1, grain / std::max<int64_t>(1, size)); }

inline void ParallelCopy(struct pthreadpool* pool, void* to, const void* from, size_t bytes) {
  ParallelRanges(pool, static_cast<int64_t>(bytes), kGrainBytes, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<char*>(to) + begin, static_cast<const char*>(from) + begin, static_cast<size_t>(end - begin));
  });
}

}  // namespace dovetail
