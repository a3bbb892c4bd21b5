#include "cli/load_program.h"

#include <chrono>

#include "backends/xnnpack/delegate/delegate.h"

namespace dovetail::cli {

Result<LoadedProgram> LoadProgram(const std::string& path, const std::string& method, unsigned threads) {
  static const DelegateEntry delegates[] = {kXnnpackDelegate};
  const auto start = std::chrono::steady_clock::now();
  LoadedProgram loaded;
  DT_ASSIGN_OR_RETURN(loaded.program, Program::Load(path));
  InstanceOptions options;
  options.threads = threads;
  options.delegates = delegates;
  DT_ASSIGN_OR_RETURN(loaded.instance, loaded.program->CreateInstance(options));
  std::string name = method;
  if (name.empty()) name = loaded.program->methods().size() == 1 ? loaded.program->methods()[0].name : "forward";
  DT_ASSIGN_OR_RETURN(loaded.method, loaded.instance->LoadMethod(name));
  loaded.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return loaded;
}

}  // namespace dovetail::cli
