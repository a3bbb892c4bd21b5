// The flags of `compile`, which `explain` takes too.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/cli.h"
#include "cli/load_program.h"
#include "compile/compile.h"

namespace dovetail::cli {

struct CompileFlags {
  std::string model, quantize = "none", state = "float", runtime = "dovetail", backends = "xnnpack,cpu";
  std::vector<std::string> methods, calibrate, keep_float, input_shapes;
  std::map<std::string, std::vector<std::string>> not_built;  // flags of the contract that later versions have

  CLI::Option* quantize_flag = nullptr;  // to know whether it was given
  QnnFlags qnn;
  bool qnn_separate_weights = false;

  void AddTo(CLI::App* verb);
  Result<CompileOptions> Options() const;
};

}  // namespace dovetail::cli
