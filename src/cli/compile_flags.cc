#include "cli/compile_flags.h"

#include <charconv>
#include <sstream>

namespace dovetail::cli {

void CompileFlags::AddTo(CLI::App* verb) {
  verb->add_option("MODEL", model, "a .pt2 file written by torch.export.save")->required();
  std::vector<std::string> schemes = {"none"};
  for (const Scheme& s : Schemes()) schemes.emplace_back(s.name);
  quantize_flag = verb->add_option("--quantize", quantize, "quantization scheme")->capture_default_str()->check(CLI::IsMember(schemes));
  verb->add_option("--state", state, "how states (a KV cache) are stored: float or int8; the qnn schemes have their own")
      ->capture_default_str()
      ->check(CLI::IsMember({"float", "int8"}));
  verb->add_option("--calibrate", calibrate,
                   "npz or safetensors files, or folders of them, one call each, in order; a call goes on from the states that the last one left");
  verb->add_option("--keep-float", keep_float, "module paths and states to leave unquantized, with * for any characters (repeatable)");
  verb->add_option("--external-weights", not_built["--external-weights"], "not in this version");
  verb->add_option("--backend", backends, "backends in order of preference")->capture_default_str();
  qnn.AddTo(verb, "for the backend qnn: the SoC to compile for, such as SM8650");
  verb->add_flag("--qnn-separate-weights", qnn_separate_weights,
                 "for the backend qnn: methods do not share weights, so that a program of several also runs on the x86 simulator");
  verb->add_option("--runtime", runtime, "dovetail, or executorch for a program that the stock ExecuTorch runtime loads")
      ->capture_default_str()
      ->check(CLI::IsMember({"dovetail", "executorch"}));
  verb->add_option("--input-shape", input_shapes, "sizes of an input in place of symbolic ones, [METHOD:]INPUT=1,32 (repeatable)")->take_all();
  verb->add_option("--method", methods, "a further method, NAME=MODEL.pt2")
      ->check([](const std::string& m) { return m.find('=') == std::string::npos || m.starts_with('=') || m.ends_with('=') ? "--method " + m + ": expected NAME=MODEL.pt2" : std::string(); });
}

namespace {

// "prefill:tokens=1,32"; the method may be left out.
Result<InputShape> ParseShape(const std::string& text) {
  const auto bad = [&] { return WrongUsage("--input-shape ", text, ": expected INPUT=SIZE,SIZE,... or METHOD:INPUT=SIZE,SIZE,..."); };
  InputShape shape;
  const size_t eq = text.find('='), colon = text.find(':');
  if (eq == std::string::npos || eq == 0 || text.back() == ',') return bad();
  const bool method = colon < eq;
  if (method) shape.method = text.substr(0, colon);
  shape.input = text.substr(method ? colon + 1 : 0, eq - (method ? colon + 1 : 0));
  std::stringstream list(text.substr(eq + 1));
  for (std::string size; std::getline(list, size, ',');) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), value);
    if (error != std::errc() || end != size.data() + size.size() || value < 0) return bad();
    shape.sizes.push_back(value);
  }
  if (shape.sizes.empty() || shape.input.empty()) return bad();
  return shape;
}

}  // namespace

Result<CompileOptions> CompileFlags::Options() const {
  for (const auto& [flag, values] : not_built)
    if (!values.empty()) return WrongUsage(flag, " is not in this version, which writes one file");
  if (!calibrate.empty() && quantize == "none" && quantize_flag->count() == 0)
    return WrongUsage("--calibrate is for a quantization scheme, and none is asked for: add --quantize with one that uses calls, such as int8 or int4");
  if (!keep_float.empty() && quantize == "none" && state == "float")
    return WrongUsage("--keep-float ", keep_float[0], " leaves something unquantized, and nothing is to be quantized: add --quantize or --state int8");
  CompileOptions options;
  if (quantize != "none") options.quantize.scheme = FindScheme(quantize);
  options.quantize.int8_states = state == "int8";
  options.quantize.keep_float = keep_float;
  options.quantize.calibration = calibrate;
  options.qnn_library = qnn.options.library;
  options.qnn_soc = qnn.options.soc;
  options.qnn_separate_weights = qnn_separate_weights;
  options.stock_runtime = runtime == "executorch";
  options.backends.clear();
  std::stringstream list(backends);
  for (std::string name; std::getline(list, name, ',');) options.backends.push_back(name);
  if (backends.ends_with(',')) options.backends.emplace_back();
  for (const std::string& m : methods) {
    const size_t eq = m.find('=');
    options.methods.emplace_back(m.substr(0, eq), m.substr(eq + 1));
  }
  for (const std::string& text : input_shapes) {
    DT_ASSIGN_OR_RETURN(InputShape shape, ParseShape(text));
    options.input_shapes.push_back(std::move(shape));
  }
  return options;
}

}  // namespace dovetail::cli
