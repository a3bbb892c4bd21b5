#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>

#include "cli/cli.h"
#include "cli/load_program.h"
#include "format/match_inputs.h"

namespace dovetail::cli {
namespace {

struct RunFlags {
  std::string model, output, method;
  std::vector<std::string> calls;
  unsigned threads = 0;
  WeightsFlags weights;
  QnnFlags qnn;
  int repeat = 1;
  bool dump_states = false;
};

// NumPy has no bf16: it is written as f32, which holds every value of it.
NamedArray ToArray(std::string name, const TensorView& t) {
  NamedArray a{std::move(name), t.dtype, {t.shape().begin(), t.shape().end()}, {}};
  if (t.dtype == DType::kBF16) {
    a.dtype = DType::kF32;
    a.data.resize(t.nbytes() * 2);
    for (size_t i = 0; i < t.nbytes() / 2; ++i) {
      const float value = BFloat16ToFloat(static_cast<const uint16_t*>(t.data)[i]);
      std::memcpy(a.data.data() + i * sizeof(float), &value, sizeof(float));
    }
    return a;
  }
  a.data.resize(t.nbytes());
  if (!a.data.empty()) std::memcpy(a.data.data(), t.data, a.data.size());
  return a;
}

std::filesystem::path OutputOf(const RunFlags& flags, const std::string& call) {
  return std::filesystem::path(flags.output) / std::filesystem::path(call).filename().replace_extension(".npz");
}

// No call may be lost under another's output.
Status CheckOutputs(const RunFlags& flags) {
  std::set<std::filesystem::path> outputs;
  for (const std::string& call : flags.calls) {
    const std::filesystem::path path = OutputOf(flags, call);
    if (!outputs.insert(path).second) return InvalidArgument("two calls would write '", path.string(), "'; run them into different folders, or rename one");
    std::error_code missing;
    for (const std::string& input : flags.calls)
      if (std::filesystem::equivalent(path, input, missing))
        return InvalidArgument("'", input, "' would be overwritten by the outputs; give another folder with -o");
  }
  return OkStatus();
}

// A folder for outputs, which is gone again at the end if it was made for them and there are none.
class OutputFolder {
 public:
  Status Make(const std::string& path) {
    std::error_code error;
    if (std::filesystem::create_directories(path, error)) made_ = path;
    return error ? IoError("cannot make folder '", path, "': ", error.message()) : OkStatus();
  }
  ~OutputFolder() {
    std::error_code not_empty;
    if (!made_.empty()) std::filesystem::remove(made_, not_empty);
  }

 private:
  std::filesystem::path made_;
};

Status Run(const RunFlags& flags, bool json) {
  DT_RETURN_IF_ERROR(CheckOutputs(flags));
  DT_ASSIGN_OR_RETURN(LoadedProgram loaded, LoadProgram(flags.model, flags.method, flags.threads, flags.weights, flags.qnn));
  OutputFolder folder;
  DT_RETURN_IF_ERROR(folder.Make(flags.output));
  nlohmann::ordered_json calls = nlohmann::ordered_json::array();
  for (const std::string& call : flags.calls) {
    DT_ASSIGN_OR_RETURN(std::vector<NamedArray> arrays, LoadArrays(call));
    DT_ASSIGN_OR_RETURN(const std::vector<TensorView> inputs, CallInputs(loaded.method->info(), arrays, call));
    double seconds = 0;
    for (int r = 0; r < flags.repeat; ++r) {
      const auto start = std::chrono::steady_clock::now();
      if (Status s = loaded.method->Execute(inputs); !s.ok()) return std::move(s).While(StrCat("running '", flags.model, "' on '", call, "'"));
      seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    std::vector<NamedArray> outputs;
    for (size_t i = 0; i < loaded.method->outputs().size(); ++i) outputs.push_back(ToArray(StrCat("output_", i), loaded.method->outputs()[i]));
    if (flags.dump_states) {
      for (const StateInfo& s : loaded.instance->states()) {
        DT_ASSIGN_OR_RETURN(const TensorView value, loaded.instance->State(s.name));
        outputs.push_back(ToArray("state." + s.name, value));
      }
    }
    const std::string path = OutputOf(flags, call).string();
    DT_RETURN_IF_ERROR(SaveNpz(path, outputs));
    calls.push_back({{"seconds", seconds}});
    if (!json) std::fprintf(stderr, "%s -> %s (%.3f ms)\n", call.c_str(), path.c_str(), seconds * 1e3);
  }
  if (json) PrintJson({{"calls", calls}, {"load_seconds", loaded.seconds}});
  return OkStatus();
}

}  // namespace

void AddRun(Context& context) {
  auto flags = std::make_shared<RunFlags>();
  CLI::App* verb = AddVerb(context, "run", "runs calls in order on one loaded method", [flags, &context] { return Run(*flags, context.json); });
  verb->add_option("MODEL", flags->model, "a .pte file")->required();
  verb->add_option("CALL", flags->calls, ".npz or .safetensors files, one call each")->required();
  verb->add_option("-o,--output", flags->output, "folder for the outputs")->required();
  verb->add_option("--method", flags->method, "the method to call");
  verb->add_option("--threads", flags->threads, "threads to use; 0: one per core");
  flags->weights.AddTo(verb);
  flags->qnn.AddTo(verb);
  verb->add_option("--repeat", flags->repeat, "times to run each call")->check(CLI::Range(1, 1000000));
  verb->add_flag("--dump-states", flags->dump_states, "also write the states after each call, as state.NAME");
}

}  // namespace dovetail::cli
