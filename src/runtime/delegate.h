// The run half of a backend: what a .pte's delegate payload is handed to.
//
// One Delegate is one payload initialised for one Method; it is used by one thread at a time. Execute allocates nothing when the
// input shapes were seen before.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"
#include "core/tensor_view.h"

struct pthreadpool;

namespace dovetail {

class Profiler;

// Data stored beside the payload under a key (Program.named_data): packed once, shared by delegates. Valid as long as the Program.
using NamedDataLookup = std::function<Result<std::span<const std::byte>>(std::string_view key)>;
// Tells that source bytes are not needed any more once a delegate has packed its own form (their pages may go).
using ReleaseBytes = std::function<void(std::span<const std::byte>)>;

// What delegates of one backend share, made by the first of them: packed weights of a Program, scratch memory of a Method.
class DelegateShared {
 public:
  virtual ~DelegateShared() = default;
};

struct DelegateInitContext {
  std::span<const std::byte> payload;  // stays valid and readable 16 bytes past its end
  NamedDataLookup named_data;
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
  // How many of a call's arguments are inputs (the others are outputs), read from the payload: a .pte does not say. Null: the
  // loader has to know.
  Result<size_t> (*num_inputs)(std::span<const std::byte> payload) = nullptr;
};

}  // namespace dovetail
