// What `run`, `generate` and `bench` start with.
#pragma once

#include <memory>
#include <string>

#include "cli/cli.h"
#include "dovetail/program.h"
#include "format/arrays.h"

namespace dovetail::cli {

struct LoadedProgram {
  std::unique_ptr<Program> program;
  std::unique_ptr<Instance> instance;
  Method* method = nullptr;
  double seconds = 0;  // to load
};

// --weights and --weights-cache.
struct WeightsFlags {
  std::string mode = "auto", cache;
  void AddTo(CLI::App* verb);
  WeightsOptions Options() const;
};

// --qnn-lib and --soc.
struct QnnFlags {
  QnnOptions options;
  void AddTo(CLI::App* verb, const char* soc = "for QNN: refuse a program that was not compiled for this SoC, such as SM8650");
  void AddLibraryTo(CLI::App* verb);  // --qnn-lib only
};

// With the delegates that this program has.
InstanceOptions OptionsWith(unsigned threads);

// An empty `method` means the only one, or "forward". 0 threads: one per core.
Result<LoadedProgram> LoadProgram(const std::string& path, const std::string& method, unsigned threads, const WeightsFlags& weights = {},
                                  const QnnFlags& qnn = {});

// The arrays of a call's file as the inputs of a method; they stay in `arrays`.
Result<std::vector<TensorView>> CallInputs(const MethodInfo& info, std::vector<NamedArray>& arrays, const std::string& file);

}  // namespace dovetail::cli
