// Hostile text forms, and graphs like those of the golden files, through the passes: every pass either fails with a Status or leaves a
// module that the verifier takes, with the same states and a text form that reads back.
//
// An input that begins with a byte below 128 is a text form. Otherwise its second byte chooses a module of the golden files, and the others
// how it is changed (graph_mutation.h).
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "passes/graph_mutation.h"
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

void RunAll(Module& module) {
  bool failed = !IsSmall(module);
  for (const Pass& pass : CorePasses()) {
    if (failed || !IsSmall(module)) return;
    Run(pass, module, &failed);
  }
  for (const char* name : {"unroll_recurrent", "additive_masks", "expand_quantized", "decompose_for_stock"}) {
    if (failed || !IsSmall(module)) return;
    Run(*FindPass(name), module, &failed);
  }
  if (failed || !IsSmall(module)) return;
  const std::string text = Print(module);
  auto again = Parse(text, "again");
  if (!again.ok()) std::fprintf(stderr, "%s\n%s\n", again.status().ToString().c_str(), text.c_str());
  DT_CHECK(again.ok());
}

// Every module of the golden files.
const std::vector<std::string>& GoldenModules() {
  static const auto* modules = [] {
    auto* found = new std::vector<std::string>;
    std::set<std::filesystem::path> paths;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator("tests/passes", error)) paths.insert(entry.path());
    for (const auto& path : paths) {
      std::ifstream file(path);
      found->emplace_back();
      for (std::string line; std::getline(file, line);) {
        if (line == "// expect" || line == "// -----") found->emplace_back();
        else found->back() += line + "\n";
      }
    }
    return found;
  }();
  return *modules;
}

}  // namespace
}  // namespace dovetail

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dovetail;
  const bool is_choices = size > 1 && data[0] >= 128 && !GoldenModules().empty();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto module = Parse(is_choices ? GoldenModules()[data[1] % GoldenModules().size()] : text, "fuzz");
  if (!module.ok()) return 0;
  if (is_choices) {
    GraphMutation(*module, std::span(data, size).subspan(2)).Run();
    if (!Verify(*module).ok()) return 0;
  }
  RunAll(*module);
  return 0;
}

std::vector<std::vector<uint8_t>> FuzzSeeds() {
  std::vector<std::vector<uint8_t>> seeds;
  std::mt19937 random(1);
  for (const std::string& text : dovetail::GoldenModules()) {
    seeds.emplace_back(text.begin(), text.end());
    for (int i = 0; i < 4; ++i) {
      std::vector<uint8_t> choices(512);
      for (uint8_t& c : choices) c = static_cast<uint8_t>(random());
      choices[0] = 0xff;
      choices[1] = static_cast<uint8_t>(seeds.size() / 5);
      seeds.push_back(std::move(choices));
    }
  }
  return seeds;
}
