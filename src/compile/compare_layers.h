// How far a quantized model is from the float one, layer by layer.
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "ir/interpreter.h"

namespace dovetail {

// Sums over elements of what is wanted and what was got.
struct Difference {
  double signal = 0, noise = 0, product = 0, got = 0, max_abs_error = 0;
  bool finite = true;

  void Add(std::span<const float> want, std::span<const float> got);
  // 10 log10(signal / noise) in dB; 300 at most, which equal tensors have.
  double sqnr_db() const;
  double cosine() const;
};

struct LayerDifference {
  std::string path, op, source, became;  // as in LayerReport
  Difference difference;
};

struct LayerComparison {
  std::vector<LayerDifference> layers;             // worst SQNR first
  std::vector<std::vector<OwnedTensor>> outputs;   // of the float model, by call
};

// Runs the float model and the model quantized as `options` say on the calls, in order, each on its own states. A layer's difference is its own: it is
// given what the float model computed up to it, as far as that was computed by layers. Without a scheme `layers` is empty.
Result<LayerComparison> CompareLayers(const std::string& input, const CompileOptions& options, std::span<const std::string> calls);

}  // namespace dovetail
