// Hostile .pt2 files through the whole compiler: what imports either compiles to a program that loads and runs, or gives a Status.
#include <cstdio>

#include "backends/xnnpack/backend.h"
#include "base/check.h"
#include "compile/emit.h"
#include "compile/lower_states.h"
#include "compile/partition.h"
#include "dovetail/program.h"
#include "import/import.h"
#include "ir/verifier.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

// A view of stride 0 may be far larger than the file.
constexpr size_t kMaxBytes = size_t{1} << 22;

bool IsSmall(const Module& module) {
  size_t total = 0;
  auto add = [&](const Constant& c) {
    if (c.nbytes() > kMaxBytes) return false;
    total += c.nbytes();
    return true;
  };
  for (const Constant& c : module.constants)
    if (!add(c)) return false;
  for (const State& s : module.states)
    if (!add(s.initial)) return false;
  return total <= kMaxBytes;
}

void MustHold(const Status& status, const char* after) {
  if (status.ok()) return;
  std::fprintf(stderr, "after %s: %s\n", after, status.ToString().c_str());
  DT_CHECK(status.ok());
}

// Whether this is an error, which must not be one of ours.
bool Refused(const Status& status) {
  if (status.code() == Code::kInternal) MustHold(status, "compiling");
  return !status.ok();
}

Status Lower(Module& module, std::span<const Backend* const> backends, bool stock) {
  for (const Pass& pass : CorePasses()) {
    DT_RETURN_IF_ERROR(pass.run(module));
    MustHold(Verify(module), std::string(pass.name).c_str());
    if (!IsSmall(module)) return OutOfRange("too large");
  }
  if (stock) DT_RETURN_IF_ERROR(RunPass(*FindPass("additive_masks"), module));
  DT_RETURN_IF_ERROR(Partition(module, backends).status().Clone());
  if (stock) DT_RETURN_IF_ERROR(RunPass(*FindPass("decompose_for_stock"), module));
  const StateSets before = CollectStates(module);
  DT_RETURN_IF_ERROR(LowerStates(module, stock));
  MustHold(Verify(module), "lower_states");
  MustHold(CheckStates(before, CollectStates(module)), "lower_states");
  return IsSmall(module) ? OkStatus() : OutOfRange("too large");
}

void Run(const Program& program) {
  InstanceOptions options;
  options.threads = 1;
  options.memory_limit = kMaxBytes;
  options.instruction_limit = 1 << 16;
  auto instance = program.CreateInstance(options);
  if (!instance.ok()) return;
  for (const MethodInfo& info : program.methods()) {
    if (!info.delegates.empty()) return;
    auto method = (*instance)->LoadMethod(info.name);
    if (!method.ok()) {
      if (method.status().code() != Code::kOutOfRange) MustHold(method.status(), "loading");  // more memory than the limit
      return;
    }
    std::vector<std::vector<std::byte>> data;
    std::vector<TensorView> inputs;
    for (const TensorInfo& input : info.inputs) {
      std::vector<int64_t> sizes;
      size_t bytes = ByteSize(input.type.dtype);
      for (Dim d : input.type.shape.dims()) {
        sizes.push_back(d.Bounds(program.symbols()).min);
        bytes *= static_cast<size_t>(sizes.back());
        if (bytes > kMaxBytes) return;
      }
      data.emplace_back(bytes);
      inputs.emplace_back(input.type.dtype, sizes, data.back().data());
    }
    (void)(*method)->Execute(inputs);
  }
}

void Compile(std::span<const std::byte> bytes, std::span<const Backend* const> backends, bool stock) {
  auto module = ImportPt2Bytes(bytes, "fuzz");
  if (!module.ok() || !IsSmall(*module)) return;
  if (Refused(Lower(*module, backends, stock))) return;
  EmitStats stats;
  auto desc = Emit(*module, {backends, stock}, stats);
  if (Refused(desc.status())) return;
  auto pte = pte::SerializePte(*desc);
  if (Refused(pte.status())) return;
  auto program = Program::FromBytes(*pte, "fuzz.pte");
  MustHold(program.status(), "writing");
  Run(**program);
}

}  // namespace
}  // namespace dovetail

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dovetail;
  const auto bytes = std::as_bytes(std::span(data, size));
  const Backend* const xnnpack[] = {&XnnpackBackend()};
  for (bool stock : {false, true}) {
    Compile(bytes, {}, stock);
    Compile(bytes, xnnpack, stock);
  }
  return 0;
}
