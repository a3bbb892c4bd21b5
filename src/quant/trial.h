// Calibration calls run in float with values rounded as they will be, to see what a choice of parameters does to the outputs.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "quant/calibration.h"
#include "quant/kernel_run.h"

namespace dovetail {

// What a squared error of clipping counts beside one of rounding, to be tried. Of equally good ones the first is taken. MobileNetV2 is best with the last, by
// 1 dB; a small net for digits with the first, by 2 dB.
inline constexpr double kClippings[] = {1, 1.0 / 4, 1.0 / 16};

class Trial {
 public:
  // The integers that a value will have; the default: it stays float.
  struct Integers {
    const QuantParams* params = nullptr;
    DType dtype = DType::kI8;
  };
  using ParamsFn = std::function<Integers(size_t graph, ValueId v)>;

  // The first 16 of the calls at most. The module outlives this.
  static Result<Trial> Load(const Module& module, std::span<const std::string> files);
  // Noise by signal, the mean over the outputs of all graphs.
  Result<double> Error(const ParamsFn& params) const;

 private:
  using Outputs = std::vector<std::vector<OwnedTensor>>;  // by call
  explicit Trial(const Module& module) : module_(module) {}
  Result<Outputs> Run(const ParamsFn& params) const;

  const Module& module_;
  std::vector<CalibrationCall> calls_;
  Outputs want_;
  KernelRun run_;
};

}  // namespace dovetail
