// What lstm_scan and gru_scan share: a recurrent layer over time whose input part is computed before, for all steps at once.
#pragma once

#include <cmath>
#include <vector>

#include "ops/dot.h"
#include "ops/infer_util.h"
#include "ops/op_def.h"

namespace dovetail {

// gates f[steps, batch, parts * width], h0 and the further states f[batch, width], weight f[parts * width, width], bias f[parts * width].
Status InferRecurrent(const InferContext& c, size_t parts, size_t states, std::string_view what);

// Sizes, and the step that comes i-th.
struct RecurrentSizes {
  int64_t steps, batch, width;
  RecurrentSizes(const TensorView& gates, const TensorView& h0) : steps(gates.sizes[0]), batch(gates.sizes[1]), width(h0.sizes[1]) {}
  int64_t StepAt(int64_t i, bool reverse) const { return reverse ? steps - 1 - i : i; }
};

inline double Logistic(double x) { return 1 / (1 + std::exp(-x)); }

}  // namespace dovetail
