// What a Program knows after loading; shared, immutable.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"
#include "dovetail/program.h"
#include "format/pte_reader.h"
#include "runtime/aligned_buffer.h"

namespace dovetail {

struct MethodData {
  const pte::ExecutionPlan* plan = nullptr;
  std::vector<int32_t> state_of_value;   // per value of the plan: index into ProgramData::states, or -1
  std::vector<std::string> sources;      // of instructions in order ("model.py:12, in forward"); may be shorter or empty
};

// What delegates of one backend share, by the backend's id.
class DelegateSlots {
 public:
  std::unique_ptr<DelegateShared>* For(std::string_view id) {
    for (auto& [known, slot] : slots_)
      if (known == id) return slot.get();
    slots_.emplace_back(id, std::make_unique<std::unique_ptr<DelegateShared>>());
    return slots_.back().second.get();
  }
  void MethodLoaded() {
    for (auto& [id, slot] : slots_)
      if (*slot) (*slot)->MethodLoaded();
  }

 private:
  std::vector<std::pair<std::string, std::unique_ptr<std::unique_ptr<DelegateShared>>>> slots_;
};

struct ProgramData {
  std::unique_ptr<MappedFile> file;  // or
  AlignedBuffer copy;
  std::string name;
  PteView view;
  std::vector<MethodInfo> infos;
  std::vector<MethodData> methods;  // parallel to infos
  std::vector<StateInfo> states;
  std::vector<std::span<const std::byte>> initial;  // of states; empty: zeros
  SymbolRanges symbols;
  QuantizationInfo quantization;
  ProgramSource source;
  // Delegates are created one at a time.
  mutable std::mutex delegates_mutex;
  mutable DelegateSlots shared;
  mutable std::mutex checked_mutex;
  mutable std::set<uint32_t> checked;  // segments whose hash was right

  // kCorrupt if the segment that these bytes are in is not what was written. Reads it, once.
  Status Check(std::span<const std::byte> bytes) const;
  Status CheckSegment(uint32_t segment) const;
};

// Fills everything but file, copy, name and view.
Status DescribeProgram(ProgramData* data);

// Every operator and delegate that some method calls and that this runtime, with these delegates, does not have; OK when none is
// missing.
Status CheckSupport(const ProgramData& data, std::span<const DelegateEntry> delegates);

// Flattens the chains of a plan: fn(number, instruction, number of the first instruction of its chain).
template <class Fn>
void ForEachInstruction(const pte::ExecutionPlan& plan, Fn fn) {
  size_t number = 0;
  for (const pte::Chain* chain : *plan.chains()) {
    const size_t base = number;
    for (const pte::Instruction* instruction : *chain->instructions()) fn(number++, *instruction, base);
  }
}
std::string OperatorName(const pte::Operator& op);

}  // namespace dovetail
