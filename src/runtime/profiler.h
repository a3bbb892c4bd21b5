// Times of executed instructions, kept in a buffer of fixed size so that measuring allocates nothing.
//
//   Profiler profiler(1 << 16);
//   program->CreateInstance({.profiler = &profiler});
//   ... Execute ...
//   for (const Profiler::Event& e : profiler.events()) ...
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace dovetail {

class Profiler {
 public:
  struct Event {
    std::string_view method, name;  // "aten::add.out", "XnnpackBackend"; valid as long as the Instance
    uint32_t instruction = 0;       // UINT32_MAX: the whole call
    int64_t start_ns = 0, end_ns = 0;  // of a steady clock
  };
  explicit Profiler(size_t capacity) { events_.reserve(capacity); }

  static int64_t Now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  void Record(const Event& event) {
    if (events_.size() < events_.capacity()) events_.push_back(event);
    else ++dropped_;
  }
  std::span<const Event> events() const { return events_; }
  // Events that found no place.
  uint64_t dropped() const { return dropped_; }
  void Clear() {
    events_.clear();
    dropped_ = 0;
  }

 private:
  std::vector<Event> events_;
  uint64_t dropped_ = 0;
};

}  // namespace dovetail
