// Samples the process's anonymous memory while it lives.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

namespace dovetail {

// RssAnon of this process in bytes, 0 where the system does not tell.
uint64_t AnonymousBytes();
// The most that was resident at once since the process began (VmHWM), files included.
uint64_t PeakResidentBytes();

class MemorySampler {
 public:
  MemorySampler();
  ~MemorySampler();
  // The most seen so far, in bytes.
  uint64_t peak() const { return peak_.load(); }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> peak_{0};
  std::thread thread_;
};

}  // namespace dovetail
