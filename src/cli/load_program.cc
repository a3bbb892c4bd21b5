#include "cli/load_program.h"

#include "format/match_inputs.h"

#include <chrono>
#include <cstdlib>

#include "backends/qnn/delegate/delegate.h"
#include "backends/xnnpack/delegate/delegate.h"

namespace dovetail::cli {

void WeightsFlags::AddTo(CLI::App* verb) {
  verb->add_option("--weights", mode, "where packed weights live: shared (a mapped cache file), fast (private huge pages), auto")
      ->check(CLI::IsMember({"auto", "shared", "fast"}))
      ->capture_default_str();
  verb->add_option("--weights-cache", cache, "folder of the cache files, or off (default: dovetail in the user's cache folder)")->type_name("FOLDER|off");
}

WeightsOptions WeightsFlags::Options() const {
  WeightsOptions options;
  options.mode = mode == "shared" ? WeightsMode::kShared : mode == "fast" ? WeightsMode::kFast : WeightsMode::kAuto;
  if (cache == "off") return options;
  options.cache_folder = cache;
  if (!cache.empty()) return options;
  const char *xdg = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (xdg && *xdg == '/') options.cache_folder = StrCat(xdg, "/dovetail");
  else if (home && *home == '/') options.cache_folder = StrCat(home, "/.cache/dovetail");
  return options;
}

void QnnFlags::AddLibraryTo(CLI::App* verb) {
  verb->add_option("--qnn-lib", options.library, "for QNN: libQnnHtp.so or a folder that has it (default: DOVETAIL_QNN_LIB, or where the system looks)")
      ->type_name("PATH");
}

void QnnFlags::AddTo(CLI::App* verb, const char* soc) {
  AddLibraryTo(verb);
  verb->add_option("--soc", options.soc, soc)->type_name("NAME");
}

InstanceOptions OptionsWith(unsigned threads) {
  static const DelegateEntry delegates[] = {kXnnpackDelegate, kQnnDelegate};
  InstanceOptions options;
  options.threads = threads;
  options.delegates = delegates;
  return options;
}

Result<LoadedProgram> LoadProgram(const std::string& path, const std::string& method, unsigned threads, const WeightsFlags& weights,
                                  const QnnFlags& qnn) {
  const auto start = std::chrono::steady_clock::now();
  LoadedProgram loaded;
  DT_ASSIGN_OR_RETURN(loaded.program, Program::Load(path, weights.Options(), qnn.options));
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
