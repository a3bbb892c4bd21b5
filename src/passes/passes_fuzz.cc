// Hostile text forms through the passes: every pass either fails with a Status or leaves a module that the verifier takes, with the same
// states and a text form that reads back.
#include <cstdio>

#include "base/check.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

void Run(const Pass& pass, Module& module, bool* failed) {
  const StateSets before = CollectStates(module);
  if (const Status status = pass.run(module); !status.ok()) {
    DT_CHECK(status.code() != Code::kInternal);
    *failed = true;
    return;
  }
  const Status verified = Verify(module);
  if (!verified.ok()) std::fprintf(stderr, "after pass %s: %s\n", std::string(pass.name).c_str(), verified.ToString().c_str());
  DT_CHECK(verified.ok());
  DT_CHECK(CheckStates(before, CollectStates(module)).ok());
}

// The contents of constants are part of the text; a view of stride 0 may be far larger than the text it came from.
bool IsSmall(const Module& module) {
  constexpr size_t kMaxBytes = size_t{1} << 20;
  size_t total = 0;
  for (const Constant& c : module.constants) {
    if (c.nbytes() > kMaxBytes) return false;
    total += c.nbytes();
  }
  return total <= kMaxBytes;
}

}  // namespace
}  // namespace dovetail

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dovetail;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto module = Parse(text, "fuzz");
  if (!module.ok() || !IsSmall(*module)) return 0;
  bool failed = false;
  for (const Pass& pass : CorePasses()) {
    if (failed || !IsSmall(*module)) return 0;
    Run(pass, *module, &failed);
  }
  for (const char* name : {"additive_masks", "decompose_for_stock"}) {
    if (failed || !IsSmall(*module)) return 0;
    Run(*FindPass(name), *module, &failed);
  }
  if (!failed && IsSmall(*module)) {
    const std::string once = Print(*module);
    auto again = Parse(once, "again");
    if (!again.ok()) std::fprintf(stderr, "%s\n%s\n", again.status().ToString().c_str(), once.c_str());
    DT_CHECK(again.ok());
  }
  return 0;
}
