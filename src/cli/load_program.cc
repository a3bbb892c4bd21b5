#include "cli/load_program.h"

#include "format/match_inputs.h"

#include <chrono>

#include "backends/xnnpack/delegate/delegate.h"

namespace dovetail::cli {

InstanceOptions OptionsWith(unsigned threads) {
  static const DelegateEntry delegates[] = {kXnnpackDelegate};
  InstanceOptions options;
  options.threads = threads;
  options.delegates = delegates;
  return options;
}

Result<LoadedProgram> LoadProgram(const std::string& path, const std::string& method, unsigned threads) {
  const auto start = std::chrono::steady_clock::now();
  LoadedProgram loaded;
  DT_ASSIGN_OR_RETURN(loaded.program, Program::Load(path));
  DT_ASSIGN_OR_RETURN(loaded.instance, loaded.program->CreateInstance(OptionsWith(threads)));
  std::string name = method;
  if (name.empty()) name = loaded.program->methods().size() == 1 ? loaded.program->methods()[0].name : "forward";
  DT_ASSIGN_OR_RETURN(loaded.method, loaded.instance->LoadMethod(name));
  loaded.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return loaded;
}

Result<std::vector<TensorView>> CallInputs(const MethodInfo& info, std::vector<NamedArray>& arrays, const std::string& file) {
  std::vector<ExpectedInput> expected;
  for (const TensorInfo& input : info.inputs) expected.push_back({std::string(input.name), input.type.dtype});
  DT_ASSIGN_OR_RETURN(const std::vector<const NamedArray*> matched, MatchInputs(expected, arrays, file));
  std::vector<TensorView> inputs;
  for (const NamedArray* a : matched) inputs.push_back(a ? TensorView(a->dtype, a->shape, const_cast<std::byte*>(a->data.data())) : TensorView());
  return inputs;
}

}  // namespace dovetail::cli
