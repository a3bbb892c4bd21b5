// The run half of a backend: what a .pte's delegate payload is handed to.
//
// One Delegate is one payload initialised for one Method; it is used by one thread at a time. Execute allocates nothing when the
// input shapes were seen before.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "base/status.h"
#include "core/tensor_view.h"

struct pthreadpool;

namespace dovetail {

class Profiler;

// Data stored beside the payload under a key (Program.named_data): packed once, shared by delegates. Valid as long as the Program.
using NamedDataLookup = std::function<Result<std::span<const std::byte>>(std::string_view key)>;
// kCorrupt if these bytes of the program are not what was written. Reads the segment that they are in.
using CheckBytes = std::function<Status(std::span<const std::byte>)>;
// Tells that source bytes are not needed any more once a delegate has packed its own form (their pages may go).
using ReleaseBytes = std::function<void(std::span<const std::byte>)>;

// What delegates of one backend share, made by the first of them: packed weights of a Program, scratch memory of a Method.
class DelegateShared {
 public:
  virtual ~DelegateShared() = default;
  // All delegates of a method were created. Called under the same lock as their creation.
  virtual void MethodLoaded() {}
};

// Where the weights that a delegate packed live. Results do not depend on it, speed and memory do.
enum class WeightsMode : uint8_t {
  kAuto,    // kShared; and later kFast where the kernel maps the cache file with small pages only and a quarter of the free memory is enough
  kShared,  // a cache file mapped read-only: loads fast, and processes share it. Without a cache folder as kFast
  kFast,    // private memory in huge pages, filled from the cache file, where there is one, while the first calls run
};

struct WeightsOptions {
  WeightsMode mode = WeightsMode::kAuto;
  // A folder for cache files, made if it is missing; empty: no file is read or written. What is in it may be removed at any time. A file serves only
  // the program file, library build and processor it was made for.
  std::string cache_folder;
  // When the files become more than this, those not used for longest are removed.
  uint64_t cache_limit = uint64_t{8} << 30;
};

// For programs with QNN delegates.
struct QnnOptions {
  // libQnnHtp.so, or a folder that has it (backends/qnn/api/library.h). Empty: what the environment's DOVETAIL_QNN_LIB says, or else where the
  // system looks for libraries.
  std::string library;
  // "SM8650": programs for another chip are refused. Empty: the one that the program was compiled for.
  std::string soc;
};

// The program that a delegate belongs to.
struct ProgramSource {
  std::span<const std::byte> image;        // all its bytes; constants lie in it
  const MappedFile* file = nullptr;        // null: it came from memory
  WeightsOptions weights;
  QnnOptions qnn;
};

struct DelegateCompileSpec {
  std::string_view key;
  std::span<const std::byte> value;
};

struct DelegateInitContext {
  std::span<const std::byte> payload;  // checked; stays valid and readable 16 bytes past its end
  std::string_view method = {};        // the method's name
  std::span<const DelegateCompileSpec> compile_specs = {};
  NamedDataLookup named_data;  // not checked
  CheckBytes check;
  ReleaseBytes release;
  struct pthreadpool* pool = nullptr;
  // Upper bounds of the tensor arguments (inputs then outputs) as the .pte has them: `rank` and `sizes` are the maxima.
  std::span<const TensorView> arguments;
  size_t num_inputs = 0;
  // Not null: Execute records the nodes that it runs (Profiler::RecordNode), and describes them if asked. It outlives the delegate.
  Profiler* profiler = nullptr;
  // This backend's slots in the Program and in the Method; null: the delegate shares nothing. What a slot holds outlives every
  // delegate that was given it. Methods of one Program may be loaded by several threads: the loader creates delegates of one
  // Program one at a time.
  std::unique_ptr<DelegateShared>* program_shared = nullptr;
  std::unique_ptr<DelegateShared>* method_shared = nullptr;
  const ProgramSource* program = nullptr;  // outlives what the slots hold; may be null
};

class Delegate {
 public:
  virtual ~Delegate() = default;
  // Inputs have this call's shapes. Outputs come with memory for their upper bound; Execute sets their sizes before writing.
  // An output may be the same memory as an input (an aliased state) only where the payload says so.
  virtual Status Execute(std::span<const TensorView> inputs, std::span<TensorView> outputs) = 0;
};

// One line of the table that the loader searches by delegate id ("XnnpackBackend").
struct DelegateEntry {
  std::string_view id;
  Result<std::unique_ptr<Delegate>> (*create)(const DelegateInitContext&);
  // How many of a call's arguments are inputs (the others are outputs), read from the payload: a .pte does not say. Called before
  // `create`, with `arguments` and `num_inputs` still empty. Null: the loader has to know.
  Result<size_t> (*num_inputs)(const DelegateInitContext&) = nullptr;
};

}  // namespace dovetail
