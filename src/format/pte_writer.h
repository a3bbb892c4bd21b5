// Writes a .pte program (wire format ET12 with the extended header) from a plain description. The same description gives
// the same bytes. Large data are Payloads, written one at a time; the file appears whole or not at all.
//
// What a tensor is follows from two fields:
//   data_buffer_idx 0, allocation      planned memory
//   data_buffer_idx 0, no allocation   memory given by the caller (an input or output)
//   data_buffer_idx k, no allocation   constant: ProgramDesc.constants[k - 1]
//   data_buffer_idx k, allocation      state: starts as ProgramDesc.mutable_initial[k - 1]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/status.h"
#include "core/dtype.h"
#include "format/payload.h"

namespace dovetail::pte {

struct AllocationDesc {
  uint32_t memory_id = 1;  // from 1: an index of non_const_buffer_sizes
  uint64_t offset = 0;     // a multiple of 16
};

struct TensorDesc {
  DType dtype = DType::kNone;
  std::vector<int32_t> sizes = {};      // upper bounds if dynamic_bound
  std::vector<uint8_t> dim_order = {};  // outermost first; empty: 0, 1, 2...
  bool dynamic_bound = false;
  uint32_t data_buffer_idx = 0;
  std::optional<AllocationDesc> allocation = {};
  std::string fully_qualified_name = {};  // of a parameter or state; may be empty
};

struct NoneDesc {};
struct IntListDesc { std::vector<int64_t> values; };  // indices of int64_t values, not the numbers themselves
struct DoubleListDesc { std::vector<double> items; };
struct BoolListDesc { std::vector<bool> items; };
struct TensorListDesc { std::vector<int32_t> values; };          // indices of tensors
struct OptionalTensorListDesc { std::vector<int32_t> values; };  // indices of tensors, -1 for None
using ValueDesc = std::variant<NoneDesc, int64_t, bool, double, std::string, TensorDesc, IntListDesc, DoubleListDesc, BoolListDesc,
                               TensorListDesc, OptionalTensorListDesc>;

// Arguments are indices of values; a kernel's are its schema's arguments in order, then its out tensors. ExecuTorch's
// convention repeats an out-variant's result: aten::add.out(self, other, alpha, out) -> out has args {self, other, alpha, out, out}.
struct KernelCallDesc { int32_t op_index = 0; std::vector<int32_t> args; };
struct DelegateCallDesc { int32_t delegate_index = 0; std::vector<int32_t> args; };
struct MoveCallDesc { int32_t from = 0, to = 0; };
struct JumpFalseDesc { int32_t condition = 0, destination = 0; };
struct FreeCallDesc { int32_t value = 0; };
using InstructionDesc = std::variant<KernelCallDesc, DelegateCallDesc, MoveCallDesc, JumpFalseDesc, FreeCallDesc>;

struct OperatorDesc { std::string name, overload; };  // {"aten::add", "out"}
struct CompileSpecDesc { std::string key; std::vector<uint8_t> value; };
struct DelegateDesc {
  std::string id = {};
  uint32_t blob_index = 0;  // into ProgramDesc.delegate_blobs; two delegates may share one
  std::vector<CompileSpecDesc> compile_specs = {};
};

struct MethodDesc {
  std::string name = "forward";
  std::vector<ValueDesc> values;
  std::vector<int32_t> inputs, outputs;
  std::vector<InstructionDesc> instructions;
  std::vector<OperatorDesc> operators;
  std::vector<DelegateDesc> delegates;
  std::vector<int64_t> non_const_buffer_sizes = {0};  // entry 0 is reserved
};

// One blob under one or more names. With `first_constant`, the names point at the segment of constants, whose first bytes
// are constants[0]: a weight that a kernel and a delegate share is stored once that way. `payload` is unused then.
struct NamedDataDesc {
  std::vector<std::string> keys = {};
  Payload payload = {};
  bool first_constant = false;
  uint32_t alignment = 1;  // a power of two; 128 at least is given
};

struct ProgramDesc {
  std::vector<MethodDesc> methods;
  std::vector<Payload> constants, mutable_initial, delegate_blobs;
  std::vector<NamedDataDesc> named_data;
  // Puts delegate blobs into the program's flatbuffer rather than in segments. ExecuTorch's XnnpackBackend lets go of a blob once
  // it is loaded, though XNNPACK goes on reading the constants in it that no operator packs: from a mapped file, segments are gone
  // then and the program crashes, while the flatbuffer stays as long as the program. For small blobs; they are held in memory.
  bool inline_delegate_blobs = false;
  bool hashes = false;  // adds those of format/pte_hashes.h
};

inline constexpr uint64_t kSegmentAlignment = 128;
inline constexpr uint64_t kConstantAlignment = 64;

// Fails, leaving no file, if an index in the description is out of range, a payload delivers another number of bytes than
// it promised, or the disk does. Returns the size of the file.
Result<uint64_t> WritePte(const ProgramDesc& program, const std::string& path);

// The same bytes in memory.
Result<std::vector<std::byte>> SerializePte(const ProgramDesc& program);

}  // namespace dovetail::pte
