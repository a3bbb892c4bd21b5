#include "quant/calibration.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>

#include "format/match_inputs.h"
#include "quant/kernel_run.h"

namespace dovetail {
namespace {

namespace fs = std::filesystem;

bool IsCallFile(const fs::path& path) {
  const fs::path ending = path.extension();
  return ending == ".npz" || ending == ".safetensors";
}

std::vector<ExpectedInput> InputsOf(const Graph& graph) {
  std::vector<ExpectedInput> inputs;
  for (ValueId v : graph.inputs) inputs.push_back({graph.value(v).name, graph.type(v).dtype});
  return inputs;
}

bool HasAllNames(const Graph& graph, const std::vector<NamedArray>& arrays) {
  return std::all_of(graph.inputs.begin(), graph.inputs.end(), [&](ValueId v) {
    return std::any_of(arrays.begin(), arrays.end(), [&](const NamedArray& a) { return a.name == graph.value(v).name; });
  });
}

Result<std::vector<OwnedTensor>> TakeInputs(const Module& module, const Graph& graph, std::vector<NamedArray>& arrays, const std::string& file) {
  DT_ASSIGN_OR_RETURN(const std::vector<const NamedArray*> matched, MatchInputs(InputsOf(graph), arrays, file));
  std::vector<OwnedTensor> inputs;
  for (const NamedArray* a : matched)
    inputs.push_back(a ? OwnedTensor::CopyOf(TensorView(a->dtype, a->shape, const_cast<std::byte*>(a->data.data()))) : OwnedTensor());
  if (auto bindings = BindSymbols(module, graph, inputs); !bindings.ok()) return std::move(bindings).status().While(StrCat("reading the call '", file, "'"));
  return inputs;
}

std::span<const float> FloatsOf(const OwnedTensor& t) { return {t.view().as<float>(), static_cast<size_t>(t.view().numel())}; }

}  // namespace

Result<std::vector<std::string>> ListCalls(std::span<const std::string> paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      if (!fs::exists(path, error)) return NotFound("there is no calibration file or folder '", path, "'");
      files.push_back(path);
      continue;
    }
    std::vector<std::string> found;
    for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error))
      if (it->path().extension() == ".npy")
        return InvalidArgument("'", it->path().string(),
                               "' is one array, not a call; a call in a calibration folder is an .npz or .safetensors file with an array for each input");
      else if (IsCallFile(it->path())) found.push_back(it->path().string());
    if (error) return IoError("cannot list the folder '", path, "': ", error.message());
    if (found.empty()) return InvalidArgument("the calibration folder '", path, "' has no .npz or .safetensors file");
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

Result<CalibrationCall> LoadCall(const Module& module, const std::string& file) {
  DT_ASSIGN_OR_RETURN(std::vector<NamedArray> arrays, LoadArrays(file));
  if (module.graphs.empty()) return InvalidArgument("the program has no method to call with '", file, "'");
  // The method that uses the most of the file's arrays, the first of equals.
  std::vector<size_t> order(module.graphs.size());
  std::iota(order.begin(), order.end(), 0);
  const auto arguments = [&](size_t g) {
    return std::count_if(module.graphs[g]->inputs.begin(), module.graphs[g]->inputs.end(), [&](ValueId v) { return module.graphs[g]->type(v).dtype != DType::kNone; });
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return arguments(a) > arguments(b); });
  if (module.graphs.size() > 1) {
    for (const bool by_name : {true, false})
      for (size_t g : order) {
        if (by_name && !HasAllNames(*module.graphs[g], arrays)) continue;
        std::vector<NamedArray> copy = arrays;
        if (auto inputs = TakeInputs(module, *module.graphs[g], copy, file); inputs.ok()) return CalibrationCall{g, *std::move(inputs)};
      }
  }
  DT_ASSIGN_OR_RETURN(std::vector<OwnedTensor> inputs, TakeInputs(module, *module.graphs[0], arrays, file));
  return CalibrationCall{0, std::move(inputs)};
}

Status ObserveCalls(const Module& module, std::span<const std::string> files, size_t first_call, const WatchedValues& watched, StateStore& states,
                    ObservedValues& observed, const ProgressFn& progress, const SeeValueFn& see) {
  const KernelRun run;
  observed.resize(module.graphs.size());
  for (size_t i = 0; i < files.size(); ++i) {
    if (progress) progress("calibrating", i, files.size());
    DT_ASSIGN_OR_RETURN(const CalibrationCall call, LoadCall(module, files[i]));
    const Graph& graph = *module.graphs[call.graph];
    auto observe = [&](const Graph&, ValueId v, const OwnedTensor& t) {
      if (watched[call.graph].contains(v)) observed[call.graph][v].Add(FloatsOf(t), first_call + i);
      if (see) see(call.graph, v, t);
    };
    for (size_t k = 0; k < call.inputs.size(); ++k) observe(graph, graph.inputs[k], call.inputs[k]);
    auto outputs = Interpret(module, graph, call.inputs, states, run.With(observe));
    if (!outputs.ok()) return std::move(outputs).status().While(StrCat("calibrating @", graph.name, " on '", files[i], "'"));
  }
  if (progress) progress("calibrating", files.size(), files.size());
  return OkStatus();
}

void MergeObserved(ObservedValues& into, const ObservedValues& from) {
  into.resize(std::max(into.size(), from.size()));
  for (size_t g = 0; g < from.size(); ++g)
    for (const auto& [v, observer] : from[g]) into[g][v].Merge(observer);
}

}  // namespace dovetail
