// Interpreting with the optimized kernels on a pool of threads of one's own, one thread per core.
#pragma once

#include <pthreadpool.h>

#include <memory>
#include <utility>

#include "ir/interpreter.h"
#include "kernels/kernels.h"

namespace dovetail {

class KernelRun {
 public:
  struct pthreadpool* pool() const { return pool_.get(); }
  // For Interpret, as long as this lives.
  InterpretOptions With(ValueObserver observer) const { return {std::move(observer), FindKernel, FindScratch, pool()}; }

 private:
  std::unique_ptr<struct pthreadpool, decltype(&pthreadpool_destroy)> pool_{pthreadpool_create(0), pthreadpool_destroy};
};

}  // namespace dovetail
