// Running a compiled program (.pte): load, make an instance, execute its methods, look after its states.
//
//   auto program = dovetail::Program::Load("model.pte");
//   if (!program.ok()) return Fail(program.status());
//   auto instance = (*program)->CreateInstance({.delegates = delegates});
//   auto method = (*instance)->LoadMethod("forward");
//   dovetail::TensorView x(dovetail::DType::kF32, shape, data);
//   if (dovetail::Status s = (*method)->Execute({&x, 1}); !s.ok()) return Fail(s);
//   use((*method)->outputs()[0]);
//
// A Program is immutable and may be shared by threads; it must outlive its instances. An Instance has the mutable half: the
// states, the thread pool and the methods loaded so far. Methods of one instance share states by name (prefill and decode
// write one cache); two instances share nothing but the file. An instance and its methods are used by one thread at a time.
//
// Nothing here throws, prints or exits. Execute allocates nothing when the shapes of its inputs were seen before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "core/dim.h"
#include "core/tensor_type.h"
#include "core/tensor_view.h"
#include "format/meta.h"
#include "runtime/delegate.h"

namespace dovetail {

class PteView;
class Profiler;
class Method;
class Instance;
struct ProgramData;
struct InstanceData;
struct MethodImpl;

// An input or output of a method. `type.shape` holds what the file knows: symbols ("s0") where dovetail.meta names them. In
// a file without it, `symbolic` is false and a dynamic tensor's shape is its upper bound. dtype kNone is an argument that
// is always None; an integer, float or bool argument is a tensor of rank 0 (i64, f64, bool).
struct TensorInfo {
  std::string name;
  TensorType type;
  bool dynamic = false;   // some size varies between calls
  bool symbolic = false;
  std::vector<int64_t> max_sizes;
};

struct StateInfo {
  std::string name;
  DType dtype = DType::kNone;
  std::vector<int64_t> sizes;
  size_t bytes = 0;
  bool has_initial_value = false;  // else it starts as zeros
};

struct DelegateInfo {
  std::string id;
  size_t bytes = 0;
  size_t calls = 0;
};

struct OperatorInfo {
  std::string name;  // "aten::add.out"
  size_t calls = 0;
  bool supported = false;
};

struct MethodInfo {
  std::string name;
  std::vector<TensorInfo> inputs, outputs;
  std::vector<uint32_t> states;  // indices into Program::states()
  std::vector<OperatorInfo> operators;
  std::vector<DelegateInfo> delegates;
  size_t planned_bytes = 0, instructions = 0;
};

struct InstanceOptions {
  // Threads that kernels and delegates use, the calling one included; 0: one per hardware thread. Results do not depend on it.
  unsigned threads = 0;
  // Where delegates are looked up by id. Must outlive the instance.
  std::span<const DelegateEntry> delegates = {};
  // Receives the times of every instruction (runtime/profiler.h). Must outlive the instance.
  Profiler* profiler = nullptr;
  // Loading and running fail rather than take more bytes for states, tensors and scratch. What delegates take is not counted.
  size_t memory_limit = SIZE_MAX;
  // Execute fails rather than run more instructions. The loops of a program may never end: for programs of unknown origin.
  size_t instruction_limit = SIZE_MAX;
  // True: inputs are read in place where the method neither plans memory for them nor writes them. The caller then keeps
  // 16 bytes readable past each one. False: every input is copied.
  bool borrow_inputs = false;
};

class Program {
 public:
  // Maps the file and checks its table; what methods compute from is checked for damage when it is first used: delegates' data when a
  // method is loaded, weights when they are packed. kNotFound, kIo, kCorrupt, kUnsupported (a format of another version). `weights` says where
  // what delegates pack lives; by default in private memory, packed anew at each load. `qnn` is for programs with QNN delegates.
  static Result<std::unique_ptr<Program>> Load(const std::string& path, const WeightsOptions& weights = {}, const QnnOptions& qnn = {});
  // Copies the bytes and checks all of them. `name` starts error messages.
  static Result<std::unique_ptr<Program>> FromBytes(std::span<const std::byte> bytes, std::string name = "program", const QnnOptions& qnn = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const std::string& name() const;
  std::span<const MethodInfo> methods() const;
  const MethodInfo* FindMethod(std::string_view name) const;  // null when there is none
  // Reads the whole file and compares it with the hashes that the compiler wrote. kCorrupt; OK for a file without hashes.
  Status CheckAll() const;
  // Of all methods together.
  std::span<const StateInfo> states() const;
  // How `compile` was told to quantize it.
  const QuantizationInfo& quantization() const;
  // Ranges of the symbols in shapes; empty for a file without dovetail.meta.
  const SymbolRanges& symbols() const;
  std::optional<std::span<const std::byte>> FindNamedData(std::string_view key) const;
  // The checked file, for tools that print more than this header knows (format/pte_reader.h).
  const PteView& view() const;
  const ProgramSource& source() const;

  // States start as their initial values.
  Result<std::unique_ptr<Instance>> CreateInstance(const InstanceOptions& options = {}) const;

 private:
  explicit Program(std::unique_ptr<ProgramData> data);
  std::unique_ptr<ProgramData> data_;
};

class Instance {
 public:
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;

  // Makes the method ready at its first use and keeps it; the pointer is valid as long as the instance. Fails with every
  // operator and delegate that the program needs and this runtime lacks, not with the first one only.
  Result<Method*> LoadMethod(std::string_view name);

  // ---- states ----
  std::span<const StateInfo> states() const;
  // The memory of a state, to read or to write between calls. It never moves. kNotFound lists the names there are.
  Result<TensorView> State(std::string_view name) const;
  // dtype and sizes must be the state's.
  Status WriteState(std::string_view name, const TensorView& value);
  // Back to the initial value.
  Status ResetState(std::string_view name);
  void ResetStates();
  // Forgets what was written at and past `position` of dimension `dim`: those elements get their initial value. With a KV
  // cache of shape [batch, heads, positions, width], dim is 2.
  Status RewindState(std::string_view name, size_t dim, int64_t position);
  // All states as one block of bytes with names and types; LoadStates takes it back, in this or another instance of a program
  // whose states are the same ones. A LoadStates that fails has changed nothing.
  std::vector<std::byte> SaveStates() const;
  Status LoadStates(std::span<const std::byte> bytes);

 private:
  friend class Program;
  explicit Instance(std::unique_ptr<InstanceData> data);
  std::unique_ptr<InstanceData> data_;
};

class Method {
 public:
  explicit Method(std::unique_ptr<MethodImpl> impl);
  ~Method();
  Method(const Method&) = delete;
  Method& operator=(const Method&) = delete;

  const MethodInfo& info() const;
  // One input per info().inputs, in order; an absent one is a default TensorView. Dtypes and sizes are checked against the
  // program's, by name. The data are never written, and must not be this method's own outputs(). After an error outputs are unspecified and states may be half
  // updated.
  Status Execute(std::span<const TensorView> inputs);
  // Of the last successful Execute, valid until the next one or the end of the instance. An output that is a state or a
  // borrowed input is that memory.
  std::span<const TensorView> outputs() const;

 private:
  std::unique_ptr<MethodImpl> impl_;
};

}  // namespace dovetail
