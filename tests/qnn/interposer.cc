// A libQnnHtp.so that stands before Qualcomm's for ExecuTorch 1.5.1: it hands on the real library's interface, but for deviceCreate. ExecuTorch writes a
// device's custom config as older HTP backends had it, its value right behind the option; newer ones (5.47 and later) have a word between. The real library is
// the file that DOVETAIL_QNN_REAL names.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "backends/qnn/api/abi.h"

namespace {

using namespace dovetail::qnn::abi;

constexpr uint32_t kSharedDeviceConfigMinor = 47;
decltype(Functions::device_create) real_device_create = nullptr;

ErrorHandle DeviceCreate(Handle log, const CustomConfig** configs, Handle* device) {
  std::vector<std::array<uint32_t, 8>> values;
  std::vector<CustomConfig> repacked;
  for (const CustomConfig** c = configs; c && *c; ++c) {
    repacked.push_back(**c);
    auto& words = values.emplace_back();
    if ((*c)->option != kCustomOption) continue;
    const auto* old = static_cast<const uint32_t*>((*c)->custom);
    words = {old[0], 0, old[1]};
  }
  std::vector<const CustomConfig*> list;
  for (size_t i = 0; i < repacked.size(); ++i) {
    if (repacked[i].option == kCustomOption) repacked[i].custom = values[i].data();
    list.push_back(&repacked[i]);
  }
  list.push_back(nullptr);
  return real_device_create(log, list.data(), device);
}

// The interface's table may be read-only.
bool Replace(const Interface& interface) {
  auto* slot = const_cast<decltype(Functions::device_create)*>(&interface.functions.device_create);
  if (*slot == DeviceCreate) return true;
  real_device_create = *slot;
  const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), begin = reinterpret_cast<uintptr_t>(slot) / page * page;
  if (mprotect(reinterpret_cast<void*>(begin), reinterpret_cast<uintptr_t>(slot + 1) - begin, PROT_READ | PROT_WRITE) != 0) return false;
  *slot = DeviceCreate;
  return true;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) ErrorHandle QnnInterface_getProviders(const Interface*** providers, uint32_t* count) {
  const char* path = std::getenv("DOVETAIL_QNN_REAL");
  void* real = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE) : nullptr;
  if (!real) {
    std::fprintf(stderr, "interposer: %s\n", path ? dlerror() : "DOVETAIL_QNN_REAL is not set");
    return 1;
  }
  const auto get_providers = reinterpret_cast<GetProviders>(dlsym(real, "QnnInterface_getProviders"));
  if (!get_providers) return 1;
  const ErrorHandle error = get_providers(providers, count);
  for (uint32_t i = 0; error == 0 && i < *count; ++i) {
    const Version& backend = (*providers)[i]->version.backend;
    if (backend.minor >= kSharedDeviceConfigMinor && !Replace(*(*providers)[i])) return 1;
  }
  return error;
}
