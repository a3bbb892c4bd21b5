// The states of one instance: memory, initial values, and states as bytes.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/aligned_buffer.h"
#include "runtime/program_data.h"

namespace dovetail {

class StateBuffers {
 public:
  // `program` outlives the store. Takes the memory and sets the initial values; fails past *memory_left, else lowers it.
  Status Init(const ProgramData& program, size_t* memory_left);

  std::byte* data(size_t state) const { return buffers_[state].data(); }
  Result<size_t> Find(std::string_view name) const;
  TensorView View(size_t state) const;
  void Reset(size_t state);
  // Elements [from, to) of the state's memory, in bytes, get their initial value.
  void ResetBytes(size_t state, size_t from, size_t to);

  // Layout: "DTST", version, count, then for each state its name, dtype, sizes and data.
  std::vector<std::byte> Save() const;
  Status Load(std::span<const std::byte> bytes);

 private:
  const ProgramData* program_ = nullptr;
  std::vector<AlignedBuffer> buffers_;
};

}  // namespace dovetail
