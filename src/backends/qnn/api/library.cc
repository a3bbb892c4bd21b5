#include "backends/qnn/api/library.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>

namespace dovetail::qnn {
namespace {

namespace fs = std::filesystem;

constexpr char kFile[] = "libQnnHtp.so", kSystemFile[] = "libQnnSystem.so";
constexpr uint32_t kCoreMajor = 2, kBackendMajor = 5, kSystemMajor = 1;
// From this version of the HTP backend on, a device's custom config has its value behind a word more.
constexpr uint32_t kSharedDeviceConfigMinor = 47;

#if defined(__aarch64__)
constexpr char kSdkFolder[] = "lib/aarch64-android";
#else
constexpr char kSdkFolder[] = "lib/x86_64-linux-clang";
#endif

thread_local std::string t_logged;  // the first error since the last Check

void Log(const char* format, abi::LogLevel level, uint64_t, va_list arguments) {
  if (level != abi::LogLevel::kError) return;
  char line[512];
  std::vsnprintf(line, sizeof line, format, arguments);
  std::string_view text = line;
  const size_t first = text.find_first_not_of(" \n");
  if (first == std::string_view::npos) return;
  text = text.substr(first, text.find_last_not_of(" \n") + 1 - first);
  if (text.starts_with("<E> ")) text.remove_prefix(4);
  if (text.starts_with("unexpected GraphHtpSettings option")) return;  // of every graph, and harmless
  if (t_logged.empty()) t_logged = text;  // what follows says the same of the functions around
}

// While it lives, what is written to standard output goes to standard error: the library prints a line when it is loaded.
class QuietStdout {
 public:
  QuietStdout() {
    std::fflush(stdout);
    saved_ = dup(STDOUT_FILENO);
    if (saved_ >= 0) dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  ~QuietStdout() {
    if (saved_ < 0) return;
    std::fflush(stdout);
    dup2(saved_, STDOUT_FILENO);
    close(saved_);
  }
  QuietStdout(const QuietStdout&) = delete;
  QuietStdout& operator=(const QuietStdout&) = delete;

 private:
  int saved_ = -1;
};

// The file to load for what the user gave; the user's words where nothing was found.
Result<std::string> FindFile(const std::string& given) {
  std::error_code error;
  if (!fs::exists(given, error)) return NotFound("no QNN library: there is no file or folder '", given, "'; it is ", kFile, " of Qualcomm's SDK or of the Python package onnxruntime-qnn");
  if (!fs::is_directory(given, error)) return given;
  for (const char* folder : {"", "onnxruntime_qnn", kSdkFolder})
    if (const fs::path file = fs::path(given) / folder / kFile; fs::exists(file, error)) return file.string();
  return NotFound("no QNN library: the folder '", given, "' has no ", kFile, ", neither by itself nor in onnxruntime_qnn or ", kSdkFolder);
}

}  // namespace

std::string ToString(const abi::Version& v) { return StrCat(v.major, ".", v.minor, ".", v.patch); }

Result<const Library*> Library::Open(const std::string& path) {
  static std::mutex mutex;
  static auto* libraries = new std::map<std::string, Library*>();  // never unloaded
  const char* variable = std::getenv("DOVETAIL_QNN_LIB");
  const std::string given = !path.empty() ? path : variable ? variable : "";
  std::string file = kFile;
  if (!given.empty()) {
    DT_ASSIGN_OR_RETURN(file, FindFile(given));
  }
  std::scoped_lock lock(mutex);
  if (const auto it = libraries->find(file); it != libraries->end()) return it->second;
  Result<std::unique_ptr<Library>> loaded = Load(file);
  if (!loaded.ok()) return std::move(loaded).status().While(StrCat("loading the QNN library '", file, "'"));
  // By another path it may be one that is there already; its calls need one mutex.
  Library* library = nullptr;
  for (const auto& [other_file, other] : *libraries)
    if (other->interface_ == (*loaded)->interface_) library = other;
  if (!library) library = loaded->release();
  libraries->emplace(file, library);
  return library;
}

Result<std::unique_ptr<Library>> Library::Load(const std::string& file) {
  void* handle = nullptr;
  {
    const QuietStdout quiet;
    handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (!handle)
    return NotFound("no QNN library: ", dlerror(),
                    ". --qnn-lib or DOVETAIL_QNN_LIB names the installed one, for example the folder of the Python package onnxruntime-qnn");
  const auto get_providers = reinterpret_cast<abi::GetProviders>(dlsym(handle, "QnnInterface_getProviders"));
  if (!get_providers) return InvalidArgument("'", file, "' is no QNN library: it has no QnnInterface_getProviders");
  const abi::Interface** providers = nullptr;
  uint32_t count = 0;
  if (const abi::ErrorHandle e = get_providers(&providers, &count); e != 0 || count == 0 || !providers)
    return Unsupported("it offers no interface (QnnInterface_getProviders: error ", e, ", ", count, " providers)");
  auto library = std::unique_ptr<Library>(new Library());
  for (uint32_t i = 0; i < count && !library->interface_; ++i)
    if (providers[i]->version.core.major == kCoreMajor) library->interface_ = providers[i];
  if (!library->interface_)
    return Unsupported("it has QNN core interface ", ToString(providers[0]->version.core), "; this Dovetail knows versions ", kCoreMajor, ".x");
  const abi::Interface& interface = *library->interface_;
  if (interface.backend_id != abi::kHtpBackendId)
    return Unsupported("it is the library of another backend (", interface.provider ? interface.provider : "unnamed", "), not HTP's");
  if (interface.version.backend.major != kBackendMajor)
    return Unsupported("its HTP backend interface is ", ToString(interface.version.backend), "; this Dovetail knows versions ", kBackendMajor, ".x");
  library->path_ = file;
  const char* build = nullptr;
  DT_RETURN_IF_ERROR(library->Check(interface.functions.backend_get_build_id(&build), "QnnBackend_getBuildId"));
  library->build_ = build ? build : "";
  return library;
}

Status Library::Check(abi::ErrorHandle error, std::string_view call) const {
  std::string logged = std::move(t_logged);
  t_logged.clear();
  if (error == 0) return OkStatus();
  const char* text = nullptr;
  if (functions().error_get_message(error, &text) != 0) text = nullptr;
  t_logged.clear();  // a message for an unknown number is an error of its own
  return Status(Code::kUnsupported, StrCat(call, " failed with QNN error ", error, text ? StrCat(" (", text, ")") : "", logged.empty() ? "" : ": ", logged));
}

Result<const abi::SystemInterface*> Library::System() const {
  std::scoped_lock lock(system_mutex_);
  if (system_) return system_;
  Dl_info where = {};
  std::string file = dladdr(reinterpret_cast<const void*>(functions().backend_create), &where) && where.dli_fname ? where.dli_fname : path_;
  file = file.find('/') == std::string::npos ? kSystemFile : file.substr(0, file.rfind('/') + 1) + kSystemFile;
  void* handle = nullptr;
  {
    const QuietStdout quiet;
    handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  if (!handle) return NotFound("no QNN System library beside '", path_, "', which is needed to read context binaries: ", dlerror());
  const auto get_providers = reinterpret_cast<abi::SystemGetProviders>(dlsym(handle, "QnnSystemInterface_getProviders"));
  const abi::SystemInterface** providers = nullptr;
  uint32_t count = 0;
  if (!get_providers || get_providers(&providers, &count) != 0 || count == 0 || !providers)
    return Unsupported("'", file, "' offers no interface (QnnSystemInterface_getProviders)");
  if (providers[0]->version.major != kSystemMajor)
    return Unsupported("'", file, "' has QNN System interface ", ToString(providers[0]->version), "; this Dovetail knows versions ", kSystemMajor, ".x");
  system_ = providers[0];
  return system_;
}

Result<std::shared_ptr<Device>> Device::Create(const Library& library, const Soc& soc) {
  auto device = std::shared_ptr<Device>(new Device(library, soc));
  const abi::Functions& f = library.functions();
  DT_RETURN_IF_ERROR(library.Check(f.log_create(Log, abi::LogLevel::kError, &device->log_), "QnnLog_create"));
  DT_RETURN_IF_ERROR(library.Check(f.backend_create(device->log_, nullptr, &device->backend_), "QnnBackend_create"));
  uint32_t value[8] = {abi::kHtpDeviceSoc};
  value[library.backend_version().minor >= kSharedDeviceConfigMinor ? 2 : 1] = soc.model;
  const abi::CustomConfig config = {abi::kCustomOption, value};
  const abi::CustomConfig* configs[] = {&config, nullptr};
  if (Status s = library.Check(f.device_create(device->log_, configs, &device->device_), "QnnDevice_create"); !s.ok())
    return std::move(s).While(StrCat("setting up QNN for ", soc.name));
  return device;
}

Device::~Device() {
  const abi::Functions& f = library_.functions();
  if (device_) f.device_free(device_);
  if (backend_) f.backend_free(backend_);
  if (log_) f.log_free(log_);
}

Result<std::unique_ptr<Context>> Context::Create(std::shared_ptr<Device> device, bool share_weights) {
  auto context = std::unique_ptr<Context>(new Context(std::move(device)));
  const Device& d = *context->device_;
  uint32_t sharing[4] = {abi::kHtpContextWeightSharing};
  sharing[abi::kHtpContextValueWord] = 1;
  const abi::CustomConfig config = {abi::kCustomOption, sharing};
  const abi::CustomConfig* configs[] = {&config, nullptr};
  DT_RETURN_IF_ERROR(d.library().Check(
      d.library().functions().context_create(d.backend(), d.device(), share_weights ? configs : nullptr, &context->context_), "QnnContext_create"));
  return context;
}

Result<std::unique_ptr<Context>> Context::FromBinary(std::shared_ptr<Device> device, std::span<const std::byte> binary) {
  auto context = std::unique_ptr<Context>(new Context(std::move(device)));
  const Device& d = *context->device_;
  DT_RETURN_IF_ERROR(d.library().Check(
      d.library().functions().context_create_from_binary(d.backend(), d.device(), nullptr, binary.data(), binary.size(), &context->context_, nullptr),
      "QnnContext_createFromBinary"));
  return context;
}

Context::~Context() {
  if (context_) device_->library().functions().context_free(context_, nullptr);
}

Result<std::vector<std::byte>> Context::Binary() const {
  const Library& library = device_->library();
  uint64_t size = 0, written = 0;
  DT_RETURN_IF_ERROR(library.Check(library.functions().context_get_binary_size(context_, &size), "QnnContext_getBinarySize"));
  std::vector<std::byte> binary(size);
  DT_RETURN_IF_ERROR(library.Check(library.functions().context_get_binary(context_, binary.data(), size, &written), "QnnContext_getBinary"));
  if (written > size) return Internal("QNN wrote ", written, " bytes into ", size);
  binary.resize(written);
  return binary;
}

Result<abi::Handle> Context::CreateGraph(const std::string& name, bool floats) const {
  const Library& library = device_->library();
  uint32_t precision[4] = {abi::kHtpGraphPrecision};
  precision[abi::kHtpGraphValueWord] = abi::kHtpPrecisionFloat16;
  const abi::CustomConfig config = {abi::kCustomOption, precision};
  const abi::CustomConfig* configs[] = {&config, nullptr};
  abi::Handle graph = nullptr;
  DT_RETURN_IF_ERROR(library.Check(library.functions().graph_create(context_, name.c_str(), floats ? configs : nullptr, &graph), "QnnGraph_create"));
  return graph;
}

Result<abi::Handle> Context::Graph(const std::string& name) const {
  abi::Handle graph = nullptr;
  const Library& library = device_->library();
  DT_RETURN_IF_ERROR(library.Check(library.functions().graph_retrieve(context_, name.c_str(), &graph), StrCat("QnnGraph_retrieve of '", name, "'")));
  return graph;
}

}  // namespace dovetail::qnn
