// Qualcomm's HTP library as the user has installed it, loaded at run time.
//
// A Library stays loaded until the process ends: it has threads and exit handlers of its own. Calls are made by one thread at a time (mutex()). What it
// logs is not printed: errors among it become part of the Status of the call that failed.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backends/qnn/api/abi.h"
#include "backends/qnn/api/soc.h"
#include "base/status.h"

namespace dovetail::qnn {

std::string ToString(const abi::Version& v);  // "2.40.0"

class Library {
 public:
  // `path` is libQnnHtp.so itself, a folder that has it, an installed onnxruntime_qnn package or the folder it lies in, or an SDK's root. Empty: what the
  // environment's DOVETAIL_QNN_LIB says, or else libQnnHtp.so where the system looks for libraries. The same file is opened once. Refuses libraries
  // that are not HTP's, and interface versions that this code does not know.
  static Result<const Library*> Open(const std::string& path);

  const abi::Functions& functions() const { return interface_->functions; }
  abi::Version core_version() const { return interface_->version.core; }
  abi::Version backend_version() const { return interface_->version.backend; }
  const std::string& build() const { return build_; }  // "v2.51.0.260929181845"
  const std::string& path() const { return path_; }

  // OK, or what failed: the name of the call, QNN's number and text, and what the library logged as errors in this thread since the last Check.
  Status Check(abi::ErrorHandle error, std::string_view call) const;

  // libQnnSystem.so, which lies beside the library; loaded at the first call.
  Result<const abi::SystemInterface*> System() const;
  // To be held by what may run in several threads.
  std::mutex& mutex() const { return mutex_; }

 private:
  Library() = default;
  static Result<std::unique_ptr<Library>> Load(const std::string& file);

  const abi::Interface* interface_ = nullptr;
  std::string path_, build_;
  mutable const abi::SystemInterface* system_ = nullptr;
  mutable std::mutex mutex_, system_mutex_;
};

// The library's backend, set up for one chip. Contexts and graphs are made on it.
class Device {
 public:
  static Result<std::shared_ptr<Device>> Create(const Library& library, const Soc& soc);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Library& library() const { return library_; }
  const Soc& soc() const { return soc_; }
  abi::Handle backend() const { return backend_; }
  abi::Handle device() const { return device_; }

 private:
  Device(const Library& library, const Soc& soc) : library_(library), soc_(soc) {}

  const Library& library_;
  const Soc& soc_;
  abi::Handle log_ = nullptr, backend_ = nullptr, device_ = nullptr;
};

// A context: the graphs of one binary, or those that are being made for one.
class Context {
 public:
  // For new graphs. `share_weights`: weights that are equal are stored once for all of them.
  static Result<std::unique_ptr<Context>> Create(std::shared_ptr<Device> device, bool share_weights);
  static Result<std::unique_ptr<Context>> FromBinary(std::shared_ptr<Device> device, std::span<const std::byte> binary);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Device& device() const { return *device_; }
  abi::Handle handle() const { return context_; }
  // An empty graph; `floats`: it has f32 tensors, which are computed in f16.
  Result<abi::Handle> CreateGraph(const std::string& name, bool floats) const;
  // After all graphs were finalized.
  Result<std::vector<std::byte>> Binary() const;
  Result<abi::Handle> Graph(const std::string& name) const;  // of a context from a binary

 private:
  explicit Context(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  std::shared_ptr<Device> device_;
  abi::Handle context_ = nullptr;
};

}  // namespace dovetail::qnn
