// Times of executed instructions and of the nodes inside delegates, kept in a buffer of fixed size so that measuring allocates nothing.
//
//   Profiler profiler(1 << 16);
//   program->CreateInstance({.profiler = &profiler});
//   ... Execute ...
//   for (const Profiler::Event& e : profiler.events()) ...
//
// Events are in the order in which they end: the nodes of a delegate before its instruction, the instructions of a call before the call.
// An event lies inside the one that follows it on the level above. Used by one thread at a time, as the instance is.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail {

class Profiler {
 public:
  static constexpr uint32_t kWholeCall = UINT32_MAX;  // as an instruction
  static constexpr uint32_t kNoNode = UINT32_MAX;

  struct Event {
    std::string_view method, name;  // "aten::add.out", "XnnpackBackend", a node's kind; valid as long as the Instance
    uint32_t instruction = 0;       // kWholeCall: the whole call
    uint32_t node = kNoNode;        // in a delegate's graph; kNoNode: the instruction itself
    int64_t start_ns = 0, end_ns = 0;  // of a steady clock
  };
  // What an event worked on. A multiply-add counts as one. `bytes` are those of inputs, outputs and constants, each once, and only the rows
  // that are touched where an operator reads or writes rows of a tensor (embedding, index, attention up to its position).
  struct Detail {
    std::string source;  // line of the user's Python
    std::string layer;   // the name of a weight that it reads ("layers.0.attn.q_proj.weight")
    std::string op;      // what a delegate's backend made of the node
    std::vector<std::string> inputs, outputs;  // "f32[1,64]", "state f32[1,8,64,32]", "constant i8[64,64]"
    uint64_t bytes = 0, constant_bytes = 0, macs = 0;
  };

  explicit Profiler(size_t capacity) { events_.reserve(capacity); }

  static int64_t Now() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  // Which instruction runs: that of the nodes that follow.
  void Begin(std::string_view method, uint32_t instruction) {
    method_ = method;
    instruction_ = instruction;
  }
  void RecordNode(std::string_view name, uint32_t node, int64_t start_ns, int64_t end_ns) {
    Record({method_, name, instruction_, node, start_ns, end_ns});
  }
  void Record(const Event& event) {
    if (events_.size() < events_.capacity()) events_.push_back(event);
    else ++dropped_;
  }
  std::span<const Event> events() const { return events_; }
  // Events that found no place.
  uint64_t dropped() const { return dropped_; }

  // While describing, every event gets a Detail too. That allocates and takes time: for calls whose times do not matter.
  void set_describing(bool on) { describing_ = on; }
  bool describing() const { return describing_; }
  // Of the event recorded last.
  void Describe(Detail detail) {
    if (dropped_ > 0) return;
    details_.resize(events_.size());
    details_.back() = std::move(detail);
  }
  // Of events() by position; shorter where the last ones were not described.
  std::span<const Detail> details() const { return details_; }

  // Forgets all events.
  void Clear() {
    events_.clear();
    details_.clear();
    dropped_ = 0;
  }
  // Forgets all events and makes room.
  void Reset(size_t capacity) {
    Clear();
    events_.shrink_to_fit();
    events_.reserve(capacity);
  }

 private:
  std::vector<Event> events_;
  std::vector<Detail> details_;
  std::string_view method_;
  uint32_t instruction_ = 0;
  bool describing_ = false;
  uint64_t dropped_ = 0;
};

}  // namespace dovetail
