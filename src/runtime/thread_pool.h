// The threads of one Instance, a pthreadpool. One thread is no pool at all: work then runs on the caller's.
#pragma once

struct pthreadpool;

namespace dovetail {

class ThreadPool {
 public:
  // 0: one per hardware thread.
  explicit ThreadPool(unsigned threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Null for one thread, which kernels and XNNPACK take as "run here".
  struct pthreadpool* get() const { return pool_; }
  unsigned threads() const { return threads_; }

 private:
  struct pthreadpool* pool_ = nullptr;
  unsigned threads_ = 1;
};

}  // namespace dovetail
