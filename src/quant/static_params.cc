#include "quant/static_params.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <set>

#include "quant/layers.h"

namespace dovetail {
namespace {

// XNNPACK (src/operators/*, 2024-11) wants the factor of requantization below 2^8 and not below these.
constexpr double kMostFactor = 255.9;
constexpr double kLeastLayerFactor = 0x1p-32, kLeastSumFactor = 0x1p-10, kLeastProductFactor = 0x1p-16, kLeastMeanFactor = 0x1p-8;
// Bits of precision that a channel of zeros leaves for its bias, below a step of the result.
constexpr double kZeroChannelBits = 0x1p-10;
constexpr int kMaxRounds = 64;
// dB of Observer::QuietCalls.
constexpr double kLeastQuiet = 15;

class ParamChooser {
 public:
  ParamChooser(const Module& module, const Graph& graph, const std::map<ValueId, Observer>& observed, WeightQuantizer& weights, StaticPlan& plan,
               double clipping)
      : module_(module), graph_(graph), observed_(observed), weights_(weights), plan_(plan), clipping_(clipping) {}

  Result<StaticParams> Run() {
    for (;;) {
      left_ = false;
      params_ = {};
      least_.clear();
      FromRanges();
      for (bool grown = true; grown && !left_;) {
        DT_ASSIGN_OR_RETURN(grown, KeepFactors());
      }
      if (!left_) return std::move(params_);
      plan_.Solve();
    }
  }

 private:
  void Leave(NodeId id, std::string reason) {
    plan_.LeaveFloat(id, std::move(reason));
    left_ = true;
  }

  void FromRanges() {
    ranges_.clear();
    zeros_.clear();
    const std::set<ValueId> images = GroupsOfConvolutions();
    for (const auto& [name, group] : plan_.groups()) {
      if (group.fixed) {
        params_.groups[name] = *group.fixed;
        continue;
      }
      Observer merged;
      for (ValueId v : group.ranges)
        if (auto it = observed_.find(v); it != observed_.end()) merged.Merge(it->second);
      if (merged.finite() == 0 && !group.ranges.empty()) {
        LeaveGroup(name, "no calibration call gave it a value");
        continue;
      }
      ranges_[name] = merged.MseRange(images.contains(name) ? clipping_ : 1);
      params_.groups[name] = ParamsOf(ranges_[name]);
      if (const ValueRange full = merged.FullRange(); full.low == 0 && full.high == 0) zeros_.insert(name);
      if (merged.QuietCalls(static_cast<double>(params_.groups[name].scale)) < kLeastQuiet) LeaveGroup(name, std::string(kVaries));
    }
  }

  std::set<ValueId> GroupsOfConvolutions() const {
    std::set<ValueId> groups;
    for (NodeId id : graph_.order) {
      const Node& n = graph_.node(id);
      if (n.op != OpId::kConvolution || !plan_.quantized(id)) continue;
      for (ValueId v : {n.operands[0], n.results[0]})
        if (plan_.integer(v)) groups.insert(plan_.group(v));
    }
    return groups;
  }

  void LeaveGroup(ValueId name, const std::string& reason) {
    for (NodeId id : graph_.order) {
      if (graph_.node(id).results.empty() || !plan_.quantized(id)) continue;
      const std::span<const ValueId> data = plan_.data(graph_.node(id));
      const auto in_group = [&](ValueId v) { return plan_.integer(v) && plan_.group(v) == name; };
      if (in_group(graph_.node(id).results[0]) || std::any_of(data.begin(), data.end(), in_group)) Leave(id, reason);
    }
  }

  double ScaleOf(ValueId v) {
    if (plan_.integer(v)) return static_cast<double>(params_.groups[plan_.group(v)].scale);
    const auto params = ConstantParams(module_.constants[ConstantOf(graph_, v)]);
    return params ? static_cast<double>(params->scale) : 0;
  }

  // Any step does for a constant of zeros, and for values of which no call had another until something settles theirs.
  bool OnlyZeros(ValueId v) const {
    if (plan_.integer(v)) return zeros_.contains(plan_.group(v));
    return AllZeros(module_.constants[ConstantOf(graph_, v)]);
  }
  // Whether that was a change.
  bool Settle(ValueId v, double scale) {
    if (!plan_.integer(v)) return false;
    params_.groups[plan_.group(v)] = QuantParams::PerTensor(static_cast<float>(scale), 0);
    zeros_.erase(plan_.group(v));
    return true;
  }

  // The result's step becomes at least `scale`. Whether that was a change.
  bool Grow(NodeId id, double scale) {
    const ValueId name = plan_.group(graph_.node(id).results[0]);
    QuantParams& q = params_.groups[name];
    if (static_cast<double>(q.scale) >= scale) return false;
    const double low = static_cast<double>(ranges_[name].low);
    q.scale = static_cast<float>(scale);
    q.zero_point = ranges_[name] == ValueRange() ? 0 : static_cast<int32_t>(std::clamp(std::nearbyint(-128 - low / scale), -128.0, 127.0));
    if (!(q.scale < FLT_MAX) || ++least_[name] > kMaxRounds || plan_.groups().at(name).fixed) Leave(id, "its scales differ too much from those around it");
    return true;
  }

  Result<bool> KeepFactors() {
    bool grown = false;
    for (NodeId id : graph_.order) {
      if (left_ || graph_.node(id).results.empty() || !plan_.quantized(id)) continue;
      const Node& n = graph_.node(id);
      const StaticRole role = plan_.rule(id).role;
      if (role == StaticRole::kLayer) {
        DT_ASSIGN_OR_RETURN(const bool layer, KeepLayerFactors(id));
        grown |= layer;
      } else if (role == StaticRole::kOwn) {
        const double result = ScaleOf(n.results[0]);
        double product = 1;
        for (ValueId v : plan_.data(n)) {
          if (n.op != OpId::kMul && OnlyZeros(v)) {
            grown |= Settle(v, result);
            continue;
          }
          const double s = ScaleOf(v);
          if (s == 0) Leave(id, "a constant operand is not finite");
          product *= s;
          if (n.op == OpId::kMul) continue;
          grown |= s / result >= kMostFactor && Grow(id, s / kMostFactor * 1.001);
          const bool mean = n.op == OpId::kMean || n.op == OpId::kAvgPool2d;
          if (s / result < (mean ? kLeastMeanFactor : kLeastSumFactor)) Leave(id, "one operand is too small beside the result");
        }
        if (n.op == OpId::kMul) {
          grown |= product / result >= kMostFactor && Grow(id, product / kMostFactor * 1.001);
          if (product / result < kLeastProductFactor) Leave(id, "its operands are too small beside the result");
        }
      }
    }
    return grown;
  }

  Result<bool> KeepLayerFactors(NodeId id) {
    const Node& n = graph_.node(id);
    DT_ASSIGN_OR_RETURN(const std::vector<float> raw, weights_.ChannelScales(WeightOf(graph_, n, weights_), ChannelAxis(n)));
    std::vector<float> bias;
    if (n.op != OpId::kMatmul && n.operands[2] != kNone) bias = FloatsOf(module_.constants[ConstantOf(graph_, n.operands[2])]);
    if (!std::all_of(bias.begin(), bias.end(), [](float b) { return std::isfinite(b); })) {
      Leave(id, "its bias has a value that is not finite");
      return false;
    }
    const float input = static_cast<float>(ScaleOf(n.operands[0])), result = static_cast<float>(ScaleOf(n.results[0]));
    std::vector<float> scales = LayerScales(raw, bias, input, result);
    double most = 0;
    for (float s : scales) most = std::max(most, static_cast<double>(s) * static_cast<double>(input));
    if (!(most < static_cast<double>(FLT_MAX) / 256)) {
      Leave(id, "the products of its input and weight are too large");
      return false;
    }
    params_.weight_scales[id] = std::move(scales);
    return most / static_cast<double>(result) >= kMostFactor && Grow(id, most / kMostFactor * 1.001);
  }

  const Module& module_;
  const Graph& graph_;
  const std::map<ValueId, Observer>& observed_;
  WeightQuantizer& weights_;
  StaticPlan& plan_;
  double clipping_;
  StaticParams params_;
  std::map<ValueId, ValueRange> ranges_;
  std::set<ValueId> zeros_;       // groups of nothing else, whose step is not settled
  std::map<ValueId, int> least_;  // how often a group has grown
  bool left_ = false;
};

}  // namespace

int ChannelAxis(const Node& layer) { return layer.op == OpId::kConvolution && GetAttr(layer, "transposed").Bool() ? 1 : 0; }

uint32_t WeightOf(const Graph& graph, const Node& layer, WeightQuantizer& weights) {
  const uint32_t constant = ConstantOf(graph, layer.operands[1]);
  return layer.op == OpId::kMatmul ? weights.Transposed(constant) : constant;
}

std::vector<float> LayerScales(const std::vector<float>& raw, std::span<const float> bias, float input, float output) {
  std::vector<float> scales(raw.size());
  const double x = static_cast<double>(input), y = static_cast<double>(output);
  for (size_t c = 0; c < raw.size(); ++c) {
    double s = raw[c] > 0 ? static_cast<double>(raw[c]) : y / x * kZeroChannelBits;
    if (!bias.empty()) s = std::max(s, std::abs(static_cast<double>(bias[c])) / x / kMostBias * (1 + 1e-6));
    s = std::max({s, y / x * kLeastLayerFactor * 1.001, static_cast<double>(FLT_MIN), static_cast<double>(FLT_MIN) / x * 1.001});
    scales[c] = static_cast<float>(s);
  }
  return scales;
}

std::vector<float> FloatsOf(const Constant& c) {
  std::vector<float> values(static_cast<size_t>(c.type.shape.numel().value()));
  c.CopyTo(reinterpret_cast<std::byte*>(values.data()));
  return values;
}

std::optional<QuantParams> ConstantParams(const Constant& c) {
  if (!c.data_known) return std::nullopt;
  Observer o;
  o.Add(FloatsOf(c), 0);
  if (o.first_bad_call() == 0) return std::nullopt;
  return ParamsOf(o.FullRange());
}

bool AllZeros(const Constant& c) {
  if (!c.data_known) return false;
  const std::vector<float> values = FloatsOf(c);
  return std::all_of(values.begin(), values.end(), [](float v) { return v == 0; });
}

Result<StaticParams> ChooseParams(const Module& module, const Graph& graph, const std::map<ValueId, Observer>& observed, WeightQuantizer& weights,
                                  StaticPlan& plan, double clipping) {
  return ParamChooser(module, graph, observed, weights, plan, clipping).Run();
}

}  // namespace dovetail
