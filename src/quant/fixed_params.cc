#include "quant/fixed_params.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "quant/block_expansion.h"
#include "quant/layers.h"
#include "quant/static_params.h"

namespace dovetail {
namespace {

// How far beyond what was seen u16 reaches: steps are plenty. Logits further: their rounding spreads no further.
constexpr float kHeadroom = 1.25f, kHeadroomOfLogits = 4;
// What the scores of a softmax in u16 reach over at least.
constexpr float kLeastScoreRange = 2;
// Seen on the simulator of SDK 2.51: the steps of input times weight may be 2^-23 of the result's, and at 2^-26 results are anything.
constexpr double kLeastFactor = 0x1p-22;
// The same of two activations: 2^-30 is right, 2^-32 is not.
constexpr double kLeastFactorOfActivations = 0x1p-29;
constexpr char kTooSmall[] = "its results are too small beside the range that they have";
// Differences of bounds stay finite.
constexpr float kMostBound = 1e38f;
// Of the lowest integer below scores: exp(-10) is no step of a u8 weight, exp(-20) none of a u16 one.
float MarginOf(DType activation) { return activation == DType::kU16 ? 20 : 10; }

class FixedParamChooser {
 public:
  FixedParamChooser(const Module& module, const Scheme& scheme, const FixedObservation& observed, WeightQuantizer& weights, double clipping,
                    FixedPlan& plan)
      : module_(module), scheme_(scheme), observed_(observed), weights_(weights), clipping_(clipping), plan_(plan) {}

  Result<FixedParams> Run() {
    for (;;) {
      left_ = false;
      params_ = {};
      ranges_.clear();
      for (const auto& [name, group] : plan_.groups()) RangeOfGroup(name, group);
      if (!left_) {
        for (size_t g = 0; g < module_.graphs.size(); ++g) LowerMasks(g);
        for (const auto& [key, range] : ranges_) params_.groups[key] = ParamsOf(range, key.second);
        for (size_t g = 0; g < module_.graphs.size(); ++g) CenterFactors(g);
        for (size_t g = 0; g < module_.graphs.size() && !left_; ++g) {
          DT_RETURN_IF_ERROR(Nodes(g));
        }
      }
      if (!left_) return std::move(params_);
      plan_.Solve();
    }
  }

 private:
  void RangeOfGroup(uint32_t name, const FixedPlan::Group& group) {
    if (group.fixed) {
      for (DType dtype : DTypesOf(name)) params_.groups[{name, dtype}] = FixedParamsOf(*group.fixed, dtype);
      return;
    }
    Observer merged;
    bool masked = false;
    for (const auto& [g, v] : group.ranges) {
      const auto it = observed_.values[g].find(v);
      masked = masked || observed_.masked[g].contains(v);
      if (it == observed_.values[g].end() || it->second.finite() == 0) continue;
      merged.Merge(it->second);
    }
    if (merged.finite() == 0) return LeaveGroup(name, "no calibration call gave it a value");
    Observer initial;
    for (uint32_t s : group.states) AddRows(module_.states[s].initial, initial);
    merged.Merge(initial);
    for (uint32_t c : group.constants) {
      if (!module_.constants[c].data_known) return LeaveGroup(name, StrCat("the data of constant '", module_.constants[c].name, "' are not in the file"));
      masked = AddRows(module_.constants[c], merged) || masked;
    }
    const ValueRange bounds = BoundsOf(group);
    for (DType dtype : DTypesOf(name)) {
      ValueRange range = group.scores || dtype == DType::kU16 ? merged.FullRange() : merged.MseRange(clipping_);
      // A state's contents are kept as they are.
      range = {std::min(range.low, initial.FullRange().low), std::max(range.high, initial.FullRange().high)};
      if (dtype == DType::kU16) {
        const float headroom = group.logits ? kHeadroomOfLogits : kHeadroom;
        range = {std::max(range.low * headroom, std::min(range.low, bounds.low)), std::min(range.high * headroom, std::max(range.high, bounds.high))};
      }
      if (masked) range.low -= group.scores ? MarginOf(dtype) : (range.high - range.low) / 16;
      // Seen on the simulator of SDK 2.51: a softmax of 16 bits goes wrong for steps below about 2e-6.
      if (group.scores && dtype == DType::kU16) range.low = std::min(range.low, range.high - kLeastScoreRange);
      range = {std::max(range.low, -kMostBound), std::min(range.high, kMostBound)};
      // Where all values were zero; any other step would do, but for the hardware's sums of very unlike ones.
      if (range.low == 0 && range.high == 0) range.high = 1;
      ranges_[{name, dtype}] = range;
    }
  }

  // What clamps leave of a group's values.
  ValueRange BoundsOf(const FixedPlan::Group& group) const {
    ValueRange all{INFINITY, -INFINITY};
    for (const auto& [g, v] : group.ranges) {
      const ValueRange own = BoundsOf(*module_.graphs[g], v);
      all = {std::min(all.low, own.low), std::max(all.high, own.high)};
    }
    return all;
  }
  static ValueRange BoundsOf(const Graph& graph, ValueId v) {
    const NodeId producer = graph.value(v).producer;
    if (producer == kNone) return {-INFINITY, INFINITY};
    const Node& n = graph.node(producer);
    const auto bound = [&](const char* name, float fallback) { return static_cast<float>(GetAttr(n, name).Number(static_cast<double>(fallback))); };
    switch (n.op) {
      case OpId::kRelu: return {0, INFINITY};
      case OpId::kHardtanh: return {bound("min_val", -1), bound("max_val", 1)};
      case OpId::kClamp: return {bound("min", -INFINITY), bound("max", INFINITY)};
      default: return {-INFINITY, INFINITY};
    }
  }

  // Its own, and what nodes of 16 bits read and make.
  std::vector<DType> DTypesOf(uint32_t name) const {
    const DType own = plan_.dtype(name);
    return own == DType::kU16 ? std::vector{own} : std::vector{own, DType::kU16};
  }

  // Products of two activations of 16 bits have their second factor's zero in the middle: the hardware has no other ones.
  void CenterFactors(size_t g) {
    const Graph& graph = *module_.graphs[g];
    for (NodeId id : graph.order) {
      const Node& n = graph.node(id);
      if ((n.op != OpId::kMatmul && n.op != OpId::kBmm) || !plan_.quantized(g, id) || !plan_.integer(g, n.operands[1])) continue;
      const std::pair name(plan_.group(g, n.operands[1]), DType::kU16);
      const auto range = ranges_.find(name);
      if (range == ranges_.end() || plan_.dtype(g, id) != DType::kU16) continue;
      const double most = std::max(-static_cast<double>(range->second.low), static_cast<double>(range->second.high));
      if (most > 0) params_.groups[name] = QuantParams::PerTensor(static_cast<float>(most / 32767), 32768);
    }
  }

  // Whether some elements were masked ones, which count for nothing.
  static bool AddRows(const Constant& c, Observer& observer) {
    if (c.nbytes() == 0) return false;
    FloatRows rows(c);
    bool masked = false;
    std::vector<float> shown;
    for (int64_t r = 0; r < rows.rows(); ++r) {
      const std::span<const float> row = rows.row(r);
      shown.clear();
      std::copy_if(row.begin(), row.end(), std::back_inserter(shown), [](float v) { return !(v < kMaskedFrom); });
      masked = masked || shown.size() < row.size();
      observer.Add(shown, 0);
    }
    return masked;
  }

  void Leave(size_t g, NodeId id, const std::string& reason) {
    plan_.LeaveFloat(g, id, reason);
    left_ = true;
  }

  // As the node computes with it.
  float ScaleOf(size_t g, NodeId id, ValueId v) const { return params_.groups.at({plan_.group(g, v), plan_.dtype(g, id)}).scale; }

  void LeaveGroup(uint32_t name, const std::string& reason) {
    left_ = true;
    for (size_t g = 0; g < module_.graphs.size(); ++g) {
      const Graph& graph = *module_.graphs[g];
      const auto in_group = [&](ValueId v) { return plan_.integer(g, v) && plan_.group(g, v) == name; };
      for (NodeId id : graph.order) {
        const Node& n = graph.node(id);
        if (n.results.empty() || !plan_.quantized(g, id)) continue;
        const std::vector<size_t> data = DataOperands(module_, graph, n);
        if (in_group(n.results[0]) || std::any_of(data.begin(), data.end(), [&](size_t i) { return in_group(n.operands[i]); })) plan_.LeaveFloat(g, id, reason);
      }
    }
    for (uint32_t s = 0; s < module_.states.size(); ++s)
      if (plan_.integer_state(s) && plan_.group_of_state(s) == name) plan_.LeaveFloat(s, reason);
  }

  // A mask that is added must take any score below the lowest that shows.
  void LowerMasks(size_t g) {
    const Graph& graph = *module_.graphs[g];
    for (NodeId id : graph.order) {
      const Node& n = graph.node(id);
      if (n.op != OpId::kAdd || !plan_.quantized(g, id) || !plan_.masked(g, n.results[0])) continue;
      const DType dtype = plan_.dtype(g, id);
      const auto sum = ranges_.find({plan_.group(g, n.results[0]), dtype});
      if (sum == ranges_.end()) continue;
      for (size_t i = 0; i < 2; ++i) {
        const ValueId mask = n.operands[i], other = n.operands[1 - i];
        if (!plan_.integer(g, other)) continue;
        const auto scores = ranges_.find({plan_.group(g, other), dtype});
        if (scores == ranges_.end()) continue;
        const float low = sum->second.low - std::max(scores->second.high, 0.0f);
        if (const uint32_t c = ConstantOf(graph, mask); c != kNone) {
          Observer o;
          if (!module_.constants[c].data_known || !AddRows(module_.constants[c], o)) continue;
          params_.constants[{g, id, i}] = ParamsOf({std::min(o.FullRange().low, low), o.FullRange().high}, dtype);
        } else if (observed_.masked[g].contains(mask) && plan_.integer(g, mask)) {
          for (DType d : DTypesOf(plan_.group(g, mask)))
            if (const auto range = ranges_.find({plan_.group(g, mask), d}); range != ranges_.end()) range->second.low = std::min(range->second.low, low);
        }
      }
    }
  }

  // Constants of their own, and the scales of layers.
  Status Nodes(size_t g) {
    const Graph& graph = *module_.graphs[g];
    for (NodeId id : graph.order) {
      const Node& n = graph.node(id);
      if (n.results.empty() || !plan_.quantized(g, id)) continue;
      if (plan_.role(g, id) == StaticRole::kLayer) DT_RETURN_IF_ERROR(Layer(g, id));
      else if (n.op == OpId::kMatmul || n.op == OpId::kBmm) LeaveSmallProduct(g, id);
      if (plan_.role(g, id) == StaticRole::kMove || plan_.role(g, id) == StaticRole::kClamp) continue;
      for (size_t i : DataOperands(module_, graph, n)) {
        const uint32_t c = ConstantOf(graph, n.operands[i]);
        if (c == kNone || params_.constants.contains({g, id, i})) continue;
        const auto params = ConstantRange(module_.constants[c]);
        if (!params) {
          Leave(g, id, "a constant operand is not finite or not in the file");
          return OkStatus();
        }
        params_.constants[{g, id, i}] = ParamsOf(*params, plan_.dtype(g, id));
      }
    }
    return OkStatus();
  }

  // Of a product of two activations whose results are nothing beside their range.
  void LeaveSmallProduct(size_t g, NodeId id) {
    const Node& n = module_.graphs[g]->node(id);
    if (!plan_.integer(g, n.operands[0]) || !plan_.integer(g, n.operands[1])) return;
    const auto scale = [&](ValueId v) { return static_cast<double>(ScaleOf(g, id, v)); };
    if (scale(n.operands[0]) * scale(n.operands[1]) < scale(n.results[0]) * kLeastFactorOfActivations) Leave(g, id, kTooSmall);
  }

  static std::optional<ValueRange> ConstantRange(const Constant& c) {
    if (!c.data_known) return std::nullopt;
    Observer o;
    o.Add(FloatsOf(c), 0);
    if (o.first_bad_call() == 0) return std::nullopt;
    return o.FullRange();
  }

  Status Layer(size_t g, NodeId id) {
    const Graph& graph = *module_.graphs[g];
    const Node& n = graph.node(id);
    const uint32_t weight = WeightOf(graph, n, weights_);
    std::vector<float> bias;
    if (n.op != OpId::kMatmul && n.operands[2] != kNone) bias = FloatsOf(module_.constants[ConstantOf(graph, n.operands[2])]);
    if (!std::all_of(bias.begin(), bias.end(), [](float b) { return std::isfinite(b); })) {
      Leave(g, id, "its bias has a value that is not finite");
      return OkStatus();
    }
    const bool blocks = HasBlocks(module_, graph, n, scheme_);
    std::vector<float> raw;
    if (scheme_.weight_bits == 4 && !blocks) {
      DT_ASSIGN_OR_RETURN(raw, FourBitScales(module_.constants[weight], ChannelAxis(n)));
    } else {
      DT_ASSIGN_OR_RETURN(raw, weights_.ChannelScales(weight, ChannelAxis(n)));
    }
    const auto scale = [&](ValueId v) { return ScaleOf(g, id, v); };
    double largest = 0;
    for (float s : raw) largest = std::max(largest, static_cast<double>(s));
    if (blocks) largest *= 127.0 / 7;  // a block with the greatest weight has steps of 4 bits
    if (largest * static_cast<double>(scale(n.operands[0])) < static_cast<double>(scale(n.results[0])) * kLeastFactor && largest > 0) {
      Leave(g, id, kTooSmall);
      return OkStatus();
    }
    if (blocks) return OkStatus();
    params_.weight_scales[{g, id}] = LayerScales(raw, bias, scale(n.operands[0]), scale(n.results[0]));
    params_.least_scales[{g, id}] = LayerScales(std::vector(raw.size(), FLT_MIN), bias, scale(n.operands[0]), scale(n.results[0]));
    return OkStatus();
  }

  const Module& module_;
  const Scheme& scheme_;
  const FixedObservation& observed_;
  WeightQuantizer& weights_;
  const double clipping_;
  FixedPlan& plan_;
  FixedParams params_;
  std::map<std::pair<uint32_t, DType>, ValueRange> ranges_;
  bool left_ = false;
};

}  // namespace

bool HasBlocks(const Module& module, const Graph& graph, const Node& layer, const Scheme& scheme) {
  if (scheme.weight_bits != 4 || layer.op == OpId::kConvolution) return false;
  const Shape& w = module.constants[ConstantOf(graph, layer.operands[1])].type.shape;
  const int64_t columns = w[layer.op == OpId::kMatmul ? 0 : 1].value();
  return columns > 0 && columns % scheme.block == 0;
}

Result<FixedParams> ChooseFixedParams(const Module& module, const Scheme& scheme, const FixedObservation& observed, WeightQuantizer& weights, double clipping,
                                      FixedPlan& plan) {
  return FixedParamChooser(module, scheme, observed, weights, clipping, plan).Run();
}

}  // namespace dovetail
