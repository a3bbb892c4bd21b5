#include "cli/compile_flags.h"

#include <sstream>

namespace dovetail::cli {

void CompileFlags::AddTo(CLI::App* verb) {
  verb->add_option("MODEL", model, "a .pt2 file written by torch.export.save")->required();
  verb->add_option("--quantize", quantize, "quantization scheme; this version has: none")->capture_default_str();
  verb->add_option("--state", state, "how states are stored; this version has: float")->capture_default_str();
  for (const char* later : {"--calibrate", "--keep-float", "--external-weights"}) verb->add_option(later, not_built[later], "not in this version");
  verb->add_option("--backend", backends, "backends in order of preference")->capture_default_str();
  verb->add_option("--runtime", runtime, "dovetail, or executorch for a program that the stock ExecuTorch runtime loads")
      ->capture_default_str()
      ->check(CLI::IsMember({"dovetail", "executorch"}));
  verb->add_option("--method", methods, "a further method, NAME=MODEL.pt2")
      ->check([](const std::string& m) { return m.find('=') == std::string::npos ? "--method " + m + ": expected NAME=MODEL.pt2" : std::string(); });
}

Result<CompileOptions> CompileFlags::Options() const {
  for (const auto& [flag, values] : not_built)
    if (!values.empty()) return Unsupported(flag, " is not in this version, which compiles float models into one file");
  if (quantize != "none") return Unsupported("--quantize ", quantize, " is not a scheme of this version; it has: none");
  if (state != "float") return Unsupported("--state ", state, " is not a choice of this version; it has: float");
  CompileOptions options;
  options.stock_runtime = runtime == "executorch";
  options.backends.clear();
  std::stringstream list(backends);
  for (std::string name; std::getline(list, name, ',');) options.backends.push_back(name);
  for (const std::string& m : methods) {
    const size_t eq = m.find('=');
    options.methods.emplace_back(m.substr(0, eq), m.substr(eq + 1));
  }
  return options;
}

}  // namespace dovetail::cli
