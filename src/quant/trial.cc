#include "quant/trial.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "ops/quantization.h"

namespace dovetail {
namespace {

constexpr size_t kTrialCalls = 16;

// As quantizing and dequantizing does, up to ties.
void Round(float* x, int64_t n, const QuantParams& q, IntegerRange range) {
  constexpr float kWhole = 0x1.8p23f;  // from here on floats are whole numbers
  const float inverse = 1 / q.scale, low = static_cast<float>(range.min - q.zero_point), high = static_cast<float>(range.max - q.zero_point);
  for (int64_t i = 0; i < n; ++i) x[i] = (std::clamp(x[i] * inverse, low, high) + kWhole - kWhole) * q.scale;
}

}  // namespace

Result<Trial> Trial::Load(const Module& module, std::span<const std::string> files) {
  Trial trial(module);
  for (const std::string& file : files.first(std::min(files.size(), kTrialCalls))) {
    DT_ASSIGN_OR_RETURN(trial.calls_.emplace_back(), LoadCall(module, file));
  }
  DT_ASSIGN_OR_RETURN(trial.want_, trial.Run([](size_t, ValueId) { return Integers(); }));
  return trial;
}

Result<Trial::Outputs> Trial::Run(const ParamsFn& params) const {
  DT_ASSIGN_OR_RETURN(StateStore states, InitStates(module_));
  Outputs outputs;
  for (const CalibrationCall& call : calls_) {
    const Graph& graph = *module_.graphs[call.graph];
    const auto round = [&](const Graph&, ValueId v, OwnedTensor& t) {
      if (const Integers i = params(call.graph, v); i.params) Round(t.view().as<float>(), t.view().numel(), *i.params, RangeOf(i.dtype));
    };
    std::vector<OwnedTensor> inputs = call.inputs;
    for (size_t i = 0; i < inputs.size(); ++i) round(graph, graph.inputs[i], inputs[i]);
    DT_ASSIGN_OR_RETURN(outputs.emplace_back(), Interpret(module_, graph, inputs, states, run_.With(round)));
  }
  return outputs;
}

Result<double> Trial::Error(const ParamsFn& params) const {
  DT_ASSIGN_OR_RETURN(const Outputs got, Run(params));
  std::map<std::pair<size_t, size_t>, std::pair<double, double>> sums;  // by graph and output: noise, signal
  for (size_t c = 0; c < want_.size(); ++c)
    for (size_t o = 0; o < want_[c].size(); ++o) {
      if (want_[c][o].type.dtype != DType::kF32) continue;
      const float *a = want_[c][o].view().as<float>(), *b = got[c][o].view().as<float>();
      auto& [noise, signal] = sums[{calls_[c].graph, o}];
      for (int64_t i = 0; i < want_[c][o].view().numel(); ++i) {
        if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
        const double x = static_cast<double>(a[i]), difference = static_cast<double>(b[i]) - x;
        noise += difference * difference;
        signal += x * x;
      }
    }
  double error = 0, outputs = 0;
  for (const auto& [output, sum] : sums)
    if (sum.second > 0) {
      error += sum.first / sum.second;
      ++outputs;
    }
  return outputs > 0 ? error / outputs : 0;
}

}  // namespace dovetail
