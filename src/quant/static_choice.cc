#include "quant/static_choice.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "quant/kernel_run.h"

namespace dovetail {
namespace {

// What a squared error of clipping counts beside one of rounding. Of equally good ones the first is taken. MobileNetV2 is best with the last, by 1 dB; a
// small net for digits with the first, by 2 dB.
constexpr double kClipping[] = {1, 1.0 / 4, 1.0 / 16};
constexpr size_t kTrialCalls = 16;

Result<StaticChoice> ChooseWith(double clipping, const Module& module, const std::vector<StaticPlan>& plans, const ObservedValues& observed,
                                WeightQuantizer& weights) {
  StaticChoice choice{plans, {}};
  for (size_t g = 0; g < module.graphs.size(); ++g) {
    DT_ASSIGN_OR_RETURN(StaticParams params, ChooseParams(module, *module.graphs[g], observed[g], weights, choice.plans[g], clipping));
    choice.params.push_back(std::move(params));
  }
  return choice;
}

bool HasConvolution(const Module& module, const StaticChoice& choice) {
  for (size_t g = 0; g < module.graphs.size(); ++g)
    for (NodeId id : module.graphs[g]->order)
      if (module.graphs[g]->node(id).op == OpId::kConvolution && choice.plans[g].quantized(id)) return true;
  return false;
}

// As quantizing and dequantizing does, up to ties.
void Round(float* x, int64_t n, const QuantParams& q) {
  constexpr float kWhole = 0x1.8p23f;  // from here on floats are whole numbers
  const float inverse = 1 / q.scale, low = static_cast<float>(-128 - q.zero_point), high = static_cast<float>(127 - q.zero_point);
  for (int64_t i = 0; i < n; ++i) x[i] = (std::clamp(x[i] * inverse, low, high) + kWhole - kWhole) * q.scale;
}

class Trial {
 public:
  Trial(const Module& module, std::vector<CalibrationCall> calls)
      : module_(module), calls_(std::move(calls)) {}

  // The outputs of each call, in float or, with a choice, with its values rounded.
  Result<std::vector<std::vector<OwnedTensor>>> Run(const StaticChoice* choice) const {
    DT_ASSIGN_OR_RETURN(StateStore states, InitStates(module_));
    std::vector<std::vector<OwnedTensor>> outputs;
    for (const CalibrationCall& call : calls_) {
      const Graph& graph = *module_.graphs[call.graph];
      const auto round = [&](const Graph&, ValueId v, OwnedTensor& t) {
        if (!choice || !choice->plans[call.graph].integer(v)) return;
        const QuantParams& q = choice->params[call.graph].groups.at(choice->plans[call.graph].group(v));
        Round(t.view().as<float>(), t.view().numel(), q);
      };
      std::vector<OwnedTensor> inputs = call.inputs;
      for (size_t i = 0; i < inputs.size(); ++i) round(graph, graph.inputs[i], inputs[i]);
      DT_ASSIGN_OR_RETURN(outputs.emplace_back(), Interpret(module_, graph, inputs, states, run_.With(round)));
    }
    return outputs;
  }

  // Noise by signal, summed over the outputs of all graphs.
  double Error(const std::vector<std::vector<OwnedTensor>>& want, const std::vector<std::vector<OwnedTensor>>& got) const {
    std::map<std::pair<size_t, size_t>, std::pair<double, double>> sums;  // by graph and output: noise, signal
    for (size_t c = 0; c < want.size(); ++c)
      for (size_t o = 0; o < want[c].size(); ++o) {
        if (want[c][o].type.dtype != DType::kF32) continue;
        const float *a = want[c][o].view().as<float>(), *b = got[c][o].view().as<float>();
        auto& [noise, signal] = sums[{calls_[c].graph, o}];
        for (int64_t i = 0; i < want[c][o].view().numel(); ++i) {
          if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
          const double x = static_cast<double>(a[i]), difference = static_cast<double>(b[i]) - x;
          noise += difference * difference;
          signal += x * x;
        }
      }
    double error = 0;
    for (const auto& [output, sum] : sums)
      if (sum.second > 0) error += sum.first / sum.second;
    return error;
  }

 private:
  const Module& module_;
  std::vector<CalibrationCall> calls_;
  KernelRun run_;
};

}  // namespace

Result<StaticChoice> ChooseStatic(const Module& module, std::span<const std::string> files, const std::vector<StaticPlan>& plans,
                                  const ObservedValues& observed, WeightQuantizer& weights, const ProgressFn& progress) {
  DT_ASSIGN_OR_RETURN(StaticChoice best, ChooseWith(kClipping[0], module, plans, observed, weights));
  if (!HasConvolution(module, best)) return best;
  std::vector<CalibrationCall> calls;
  for (const std::string& file : files.first(std::min(files.size(), kTrialCalls))) {
    DT_ASSIGN_OR_RETURN(calls.emplace_back(), LoadCall(module, file));
  }
  const Trial trial(module, std::move(calls));
  DT_ASSIGN_OR_RETURN(const auto want, trial.Run(nullptr));
  double least = INFINITY;
  for (size_t i = 0; i < std::size(kClipping); ++i) {
    if (progress) progress("choosing ranges", i, std::size(kClipping));
    DT_ASSIGN_OR_RETURN(StaticChoice choice, ChooseWith(kClipping[i], module, plans, observed, weights));
    DT_ASSIGN_OR_RETURN(const auto got, trial.Run(&choice));
    const double error = trial.Error(want, got);
    if (error >= least) continue;
    least = error;
    best.plans.clear();
    best.params = std::move(choice.params);
    for (const StaticPlan& plan : choice.plans) best.plans.push_back(plan);
  }
  if (progress) progress("choosing ranges", std::size(kClipping), std::size(kClipping));
  return best;
}

}  // namespace dovetail
