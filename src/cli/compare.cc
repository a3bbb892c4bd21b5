#include "compile/compare_layers.h"

#include <cstdio>
#include <memory>

#include "cli/compile_flags.h"
#include "cli/load_program.h"
#include "dovetail/program.h"
#include "ops/dispatch.h"
#include "quant/masks.h"

namespace dovetail::cli {
namespace {

struct CompareFlags {
  CompileFlags compile;
  std::string program, method;
  std::vector<std::string> calls;
  unsigned threads = 0;
  WeightsFlags weights;
};

// What the .pte was quantized with, unless the user says otherwise.
Status TakeQuantization(const Program& program, CompileFlags& flags) {
  const QuantizationInfo& made = program.quantization();
  if (flags.quantize == "none" && !made.scheme.empty()) flags.quantize = made.scheme;
  if (flags.state == "float" && !made.state.empty()) flags.state = made.state;
  if (flags.keep_float.empty()) flags.keep_float = made.keep_float;
  return OkStatus();
}

std::vector<float> AsFloats(const TensorView& t) {
  std::vector<float> values(static_cast<size_t>(t.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(ReadElement<double>(t.dtype, t.data, static_cast<int64_t>(i)));
  return values;
}

nlohmann::ordered_json Numbers(const Difference& d) {
  return {{"sqnr_db", d.sqnr_db()}, {"max_abs_error", d.finite ? nlohmann::ordered_json(d.max_abs_error) : nlohmann::ordered_json()}, {"cosine", d.cosine()}};
}

// An output beside the float model's, and the same without its very low elements: where there are any, they are masked ones as a rule, and nearly all of its power.
struct ComparedOutput {
  Difference all, unmasked;
  size_t masked = 0;

  void Add(std::span<const float> want, std::span<const float> got) {
    all.Add(want, got);
    for (size_t i = 0; i < want.size(); ++i) {
      if (want[i] < kMaskedFrom) ++masked;
      else unmasked.Add(want.subspan(i, 1), got.subspan(i, 1));
    }
  }
  nlohmann::ordered_json Json() const {
    nlohmann::ordered_json j = Numbers(all);
    if (masked > 0) j["unmasked"] = Numbers(unmasked);
    return j;
  }
};

void PrintLine(const std::string& what, const Difference& d) {
  std::printf("%-24s %10.2f %14.6g %10.6f\n", what.c_str(), d.sqnr_db(), d.max_abs_error, d.cosine());
}

Status Compare(CompareFlags& flags, bool json) {
  DT_ASSIGN_OR_RETURN(LoadedProgram loaded, LoadProgram(flags.program, flags.method, flags.threads, flags.weights, flags.compile.qnn));
  DT_RETURN_IF_ERROR(TakeQuantization(*loaded.program, flags.compile));
  DT_ASSIGN_OR_RETURN(CompileOptions options, flags.compile.Options());
  std::string no_layers;
  if (options.quantize.scheme && IsCalibrated(*options.quantize.scheme) && options.quantize.calibration.empty()) {
    no_layers = StrCat("layers of ", options.quantize.scheme->name, " need the calls it was calibrated with; give them with --calibrate");
    options.quantize.scheme = nullptr;
  }
  DT_ASSIGN_OR_RETURN(const LayerComparison comparison, CompareLayers(flags.compile.model, options, flags.calls));
  std::vector<ComparedOutput> outputs;
  for (size_t call = 0; call < flags.calls.size(); ++call) {
    DT_ASSIGN_OR_RETURN(std::vector<NamedArray> arrays, LoadArrays(flags.calls[call]));
    DT_ASSIGN_OR_RETURN(const std::vector<TensorView> inputs, CallInputs(loaded.method->info(), arrays, flags.calls[call]));
    if (Status s = loaded.method->Execute(inputs); !s.ok()) return std::move(s).While(StrCat("running '", flags.program, "' on '", flags.calls[call], "'"));
    const std::vector<OwnedTensor>& want = comparison.outputs[call];
    if (want.size() != loaded.method->outputs().size())
      return InvalidArgument("'", flags.program, "' gives ", loaded.method->outputs().size(), " outputs and '", flags.compile.model, "' gives ", want.size(),
                             "; it was compiled from another model");
    outputs.resize(want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      const std::vector<float> a = AsFloats(want[i].view()), b = AsFloats(loaded.method->outputs()[i]);
      if (a.size() != b.size())
        return InvalidArgument("output ", i, " of '", flags.program, "' has ", b.size(), " elements and that of '", flags.compile.model, "' ", a.size(),
                               "; it was compiled from another model");
      outputs[i].Add(a, b);
    }
  }
  if (json) {
    nlohmann::ordered_json j;
    j["outputs"] = nlohmann::ordered_json::array();
    for (const ComparedOutput& o : outputs) j["outputs"].push_back(o.Json());
    j["layers"] = nlohmann::ordered_json::array();
    for (const LayerDifference& l : comparison.layers) {
      nlohmann::ordered_json layer = {{"path", l.path}, {"op", l.op}, {"became", l.became.empty() ? "f32" : l.became}};
      layer.update(Numbers(l.difference));
      layer["location"] = l.source;
      j["layers"].push_back(std::move(layer));
    }
    if (!no_layers.empty()) j["note"] = no_layers;
    PrintJson(j);
    return OkStatus();
  }
  std::printf("%-24s %10s %14s %10s\n", "output", "SQNR dB", "max abs error", "cosine");
  for (size_t i = 0; i < outputs.size(); ++i) {
    PrintLine(std::to_string(i), outputs[i].all);
    if (outputs[i].masked > 0) PrintLine(StrCat("  but for ", outputs[i].masked, " below ", static_cast<int>(kMaskedFrom)), outputs[i].unmasked);
  }
  if (!no_layers.empty()) std::printf("\n%s\n", no_layers.c_str());
  if (comparison.layers.empty()) return OkStatus();
  std::printf("\n%-44s %10s %14s %10s  %s\n", "layer, worst first", "SQNR dB", "max abs error", "cosine", "became; where");
  for (const LayerDifference& l : comparison.layers)
    std::printf("%-44s %10.2f %14.6g %10.6f  %s; %s\n", l.path.c_str(), l.difference.sqnr_db(), l.difference.max_abs_error, l.difference.cosine(),
                l.became.empty() ? "f32" : l.became.c_str(), l.source.c_str());
  return OkStatus();
}

}  // namespace

void AddCompare(Context& context) {
  auto flags = std::make_shared<CompareFlags>();
  CLI::App* verb =
      AddVerb(context, "compare", "compares a .pte with the float model: outputs, and its layers from the worst",
              [flags, &context] { return Compare(*flags, context.json); });
  flags->compile.AddTo(verb);
  verb->add_option("PROGRAM", flags->program, "the .pte that was compiled from it")->required();
  verb->add_option("CALL", flags->calls, ".npz or .safetensors files, one call each, in order")->required();
  verb->add_option("--call-method", flags->method, "the method of the program to call");
  verb->add_option("--threads", flags->threads, "threads to use; 0: one per core");
  flags->weights.AddTo(verb);
}

}  // namespace dovetail::cli
