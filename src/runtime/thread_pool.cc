#include "runtime/thread_pool.h"

#include <pthreadpool.h>

#include <algorithm>
#include <thread>

namespace dovetail {
namespace {
constexpr unsigned kMaxThreads = 256;
}

ThreadPool::ThreadPool(unsigned threads) {
  if (threads == 0) threads = std::thread::hardware_concurrency();
  threads_ = std::clamp(threads, 1u, kMaxThreads);
  if (threads_ > 1) pool_ = pthreadpool_create(threads_);
  if (!pool_) threads_ = 1;
}

ThreadPool::~ThreadPool() {
  if (pool_) pthreadpool_destroy(pool_);
}

}  // namespace dovetail
