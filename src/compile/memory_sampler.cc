#include "compile/memory_sampler.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <string>

namespace dovetail {

namespace {

uint64_t StatusBytes(const char* line) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word)
    if (word == line) {
      uint64_t kib = 0;
      status >> kib;
      return kib * 1024;
    }
  return 0;
}

}  // namespace

uint64_t AnonymousBytes() { return StatusBytes("RssAnon:"); }
uint64_t PeakResidentBytes() { return StatusBytes("VmHWM:"); }

MemorySampler::MemorySampler() : peak_(AnonymousBytes()) {
  thread_ = std::thread([this] {
    while (!stop_) {
      peak_ = std::max(peak_.load(), AnonymousBytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
}

MemorySampler::~MemorySampler() {
  stop_ = true;
  thread_.join();
}

}  // namespace dovetail
