// Reads a .pte program in place. ReadPte checks the whole file once; a PteView that it returns is safe to use without
// further checks: every table, vector and string that the accessors below or a runtime loop touches is present and in
// range. What is not checked is what only a kernel or delegate knows: which kinds of value an operator takes, and what is
// inside a delegate's blob.
//
// Guaranteed after ReadPte, for every method:
//   - every EValue is of a known kind; tensors have rank <= kMaxRank, a dtype that Dovetail has, sizes >= 0 whose product
//     in bytes fits, a dim_order that is a permutation, storage_offset 0;
//   - planned memory of a tensor lies inside its buffer and constants and initial values inside their segments;
//   - lists refer to values of the right kind; Move is between values of one kind (tensors: one dtype and rank);
//     the condition of JumpFalse is a bool or a bool tensor; Free names a tensor; jumps stay inside the chain;
//   - argument, input and output indices are in range; there is at least one chain;
//   - operators and delegates are named; delegates' data are in the file; names of methods and named data are unique;
//   - where the file has hashes (format/pte_hashes.h), what is in front of the segments is what was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/program_generated.h"

namespace dovetail {

// Borrows the bytes given to ReadPte. Immutable: safe for concurrent readers.
class PteView {
 public:
  const pte::Program& program() const { return *program_; }
  const std::string& name() const { return name_; }

  std::span<const std::byte> Segment(uint32_t index) const;
  // The one that these bytes of the file are in; nothing for those in front of the segments.
  std::optional<uint32_t> SegmentOf(std::span<const std::byte> bytes) const;
  // Reads all of the segment. kCorrupt if it is not what was written; OK in a file without hashes.
  Status CheckSegment(uint32_t index) const;
  bool has_hashes() const { return !hashes_.empty(); }
  // The segment of that name, or nothing.
  std::optional<std::span<const std::byte>> FindNamedData(std::string_view key) const;
  // Exactly the bytes of a constant tensor; empty for one that is not constant or lies outside the file (IsExternal).
  std::span<const std::byte> ConstantData(const pte::Tensor& tensor) const;
  // Exactly the bytes that a state starts with; empty for a tensor without an initial value.
  std::span<const std::byte> InitialData(const pte::Tensor& tensor) const;
  std::span<const std::byte> DelegateData(const pte::BackendDelegate& delegate) const;
  // The method of that name, or null.
  const pte::ExecutionPlan* FindMethod(std::string_view name) const;

 private:
  Status ReadHashes(std::span<const std::byte> front);
  std::string DescribeSegment(uint32_t index) const;

  friend Result<PteView> ReadPte(std::span<const std::byte> file, std::string name);
  std::string name_;
  const pte::Program* program_ = nullptr;
  std::span<const std::byte> segments_;       // from the segment base to the end
  std::vector<uint32_t> named_data_by_key_;  // sorted
  std::vector<uint64_t> hashes_;             // by segment, but for the last
};

// `file` starts at an address that is a multiple of 16 (a mapping does) and outlives the view; `name` starts error messages.
// Fails with kCorrupt, or kUnsupported for a valid file with something Dovetail does not have.
Result<PteView> ReadPte(std::span<const std::byte> file, std::string name);

// Of a checked tensor. Sizes are upper bounds unless the tensor is static.
std::span<const int32_t> TensorSizes(const pte::Tensor& tensor);
uint64_t TensorBytes(const pte::Tensor& tensor);
uint64_t AllocationOffset(const pte::AllocationDetails& allocation);
// The tensor's data is a named tensor of another file (.ptd); its key is extra_tensor_info()->fully_qualified_name().
bool IsExternal(const pte::Tensor& tensor);
// Constant: has data and no planned memory.
bool IsConstant(const pte::Tensor& tensor);

}  // namespace dovetail
