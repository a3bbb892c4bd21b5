// Hostile .pt2 files: importing fails, or gives a module that passes the verifier, has a text form, and whose constants can be read.
#include "base/check.h"
#include "import/import.h"
#include "ir/text.h"
#include "ir/verifier.h"

namespace {

// A view of stride 0 may be far larger than the file, which is for the compiler's limits to say.
constexpr size_t kMaxRead = size_t{1} << 20;

void Read(const dovetail::Constant& constant) {
  if (!constant.data_known || constant.nbytes() > kMaxRead) return;
  std::vector<std::byte> bytes(constant.nbytes());
  constant.CopyTo(bytes.data());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto module = dovetail::ImportPt2Bytes(std::as_bytes(std::span(data, size)), "fuzz");
  if (!module.ok()) {
    DT_CHECK(!module.status().ToString().empty());
    return 0;
  }
  DT_CHECK(dovetail::Verify(*module).ok());
  DT_CHECK(!dovetail::Print(*module).empty());
  for (const dovetail::Constant& constant : module->constants) Read(constant);
  for (const dovetail::State& state : module->states) Read(state.initial);
  return 0;
}
