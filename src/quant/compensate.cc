#include "quant/compensate.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "kernels/parallel.h"
#include "quant/layer_moments.h"
#include "quant/layers.h"

namespace dovetail {
namespace {

constexpr size_t kMomentBytes = size_t{128} << 20;

// Layers by what they read: one of those that read it.
using Readers = std::map<LayerInput, NodeId>;

struct Target {
  uint32_t weight = kNone;
  Readers inputs;  // a tied weight has several
  std::string path;
};

// The weights in blocks, in order of their first use.
std::vector<Target> FindTargets(const Module& module, const QuantizeOptions& options, WeightQuantizer& weights) {
  std::vector<Target> targets;
  std::map<const void*, size_t> known;
  for (size_t g = 0; g < module.graphs.size(); ++g) {
    const Graph& graph = *module.graphs[g];
    for (NodeId id : graph.order) {
      const Node& n = graph.node(id);
      if ((n.op != OpId::kLinear && n.op != OpId::kMatmul) || graph.type(n.results[0]).dtype != DType::kF32) continue;
      const Node* constant = graph.producer_if(n.operands[1], OpId::kConst);
      if (!constant || module.constants[constant->ref].type.rank() != 2 || !module.constants[constant->ref].data_known) continue;
      std::string path = LayerPath(module, graph, n);
      if (KeptFloat(options, path)) continue;
      const uint32_t weight = n.op == OpId::kMatmul ? weights.Transposed(constant->ref) : constant->ref;
      const int64_t columns = module.constants[weight].type.shape[1].value();
      if (columns == 0 || columns % options.scheme->block != 0 || weights.stays_at_8_bits(weight)) continue;
      const auto [it, inserted] = known.try_emplace(module.constants[weight].identity(), targets.size());
      if (inserted) targets.push_back({weight, {}, std::move(path)});
      targets[it->second].inputs.emplace(LayerInputOf(module, g, id), id);
    }
  }
  return targets;
}

// Targets whose moments fit into memory together, in order.
template <class T>
std::vector<std::vector<const T*>> Cut(const Module& module, const std::vector<T>& targets) {
  std::vector<std::vector<const T*>> parts;
  Readers inputs;
  size_t bytes = 0;
  const auto each = [&](const auto& input) {
    const Graph& graph = *module.graphs[input.first.graph];
    return LayerMoments::BytesFor(graph, graph.node(input.second));
  };
  for (const T& t : targets) {
    size_t more = 0, all = 0;
    for (const auto& input : t.inputs) {
      all += each(input);
      more += inputs.contains(input.first) ? 0 : each(input);
    }
    if (parts.empty() || bytes + more > kMomentBytes) {
      parts.emplace_back();
      inputs.clear();
      bytes = 0;
      more = all;
    }
    bytes += more;
    inputs.insert(t.inputs.begin(), t.inputs.end());
    parts.back().push_back(&t);
  }
  return parts;
}

template <class T>
Readers InputsOf(const std::vector<const T*>& targets) {
  Readers inputs;
  for (const T* t : targets) inputs.insert(t->inputs.begin(), t->inputs.end());
  return inputs;
}

LayerMoments SumOf(const std::map<LayerInput, LayerMoments>& moments, const Readers& inputs) {
  LayerMoments sum = moments.at(inputs.begin()->first);
  for (auto it = std::next(inputs.begin()); it != inputs.end(); ++it) sum.Merge(moments.at(it->first));
  return sum;
}

// Layers that share weight and scales, and so their integers.
struct ChannelTarget {
  const ChannelLayer* first;
  std::vector<std::vector<float>*> scales;
  Readers inputs;
};

std::vector<ChannelTarget> ChannelTargets(const Module& module, std::span<const ChannelLayer> layers) {
  std::vector<ChannelTarget> targets;
  std::map<std::pair<const void*, std::vector<float>>, size_t> known;
  for (const ChannelLayer& l : layers) {
    const auto [it, inserted] = known.try_emplace({module.constants[l.weight].identity(), *l.scales}, targets.size());
    if (inserted) targets.push_back({&l, {}, {}});
    targets[it->second].scales.push_back(l.scales);
    targets[it->second].inputs.emplace(LayerInputOf(module, l.graph, l.node), l.node);
  }
  return targets;
}

// The rows of one group, with the scales given times each of `factors` for the one that errs least in each row.
void RoundGroup(const Constant& weight, int64_t first, std::span<float> scales, std::span<const float> least, IntegerRange range, std::span<const float> factors,
                const Compensation& compensation, int8_t* integers, struct pthreadpool* pool) {
  const int64_t rows = static_cast<int64_t>(scales.size()), width = compensation.width();
  const std::vector<float> given(scales.begin(), scales.end());
  std::vector<float> tried(scales.size());
  std::vector<int8_t> rounded(scales.size() * static_cast<size_t>(width));
  std::vector<double> errors(scales.size()), best(scales.size(), INFINITY);
  for (float factor : factors) {
    for (size_t r = 0; r < tried.size(); ++r) tried[r] = std::max(given[r] * factor, least[r]);
    RoundRows(weight, first, rows, {range, width, tried}, compensation, rounded.data(), errors, pool);
    for (size_t r = 0; r < tried.size(); ++r) {
      if (!(errors[r] < best[r])) continue;
      best[r] = errors[r];
      scales[r] = tried[r];
      std::copy_n(rounded.begin() + static_cast<std::ptrdiff_t>(r) * width, width, integers + static_cast<int64_t>(r) * width);
    }
  }
}

}  // namespace

Status RoundWeightsOnCalls(Module& module, const QuantizeOptions& options, std::span<const std::string> files, WeightQuantizer& weights, QuantizeReport& report) {
  const std::vector<Target> targets = FindTargets(module, options, weights);
  const std::vector<std::vector<const Target*>> parts = Cut(module, targets);
  const MomentsRun run(module, files, options.progress);
  const BlockScales kind = options.scheme->activations == Activations::kFixed ? BlockScales::kExpanded : BlockScales::kFree;
  std::string unseen;
  size_t done = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    DT_ASSIGN_OR_RETURN(const auto moments, run.Gather(InputsOf(parts[p]), p, parts.size()));
    std::map<Readers, Compensation> compensations;  // linears that share an input share its factor
    for (const Target* t : parts[p]) {
      const LayerMoments sum = SumOf(moments, t->inputs);
      ++done;
      if (sum.rows() == 0) {
        unseen += StrCat(unseen.empty() ? "" : ", ", t->path);
        continue;
      }
      DT_RETURN_IF_ERROR(weights.CheckFinite(t->weight));
      auto it = compensations.find(t->inputs);
      if (it == compensations.end()) {
        compensations.clear();  // of the layers before
        it = compensations.emplace(t->inputs, Compensation(sum.groups()[0])).first;
      }
      const int block = options.scheme->block;
      weights.SetPerBlock(t->weight, block, RoundCompensating(module.constants[t->weight], block, it->second, run.pool(), kind));
      if (options.progress) options.progress("rounding weights", done, targets.size());
    }
  }
  if (!unseen.empty()) report.warnings.push_back("no calibration call reached these layers, whose weights are rounded to nearest: " + unseen);
  return OkStatus();
}

Status RoundChannelsOnCalls(const Module& module, std::span<const ChannelLayer> layers, int bits, std::span<const std::string> files, const ProgressFn& progress,
                            WeightQuantizer& weights) {
  const std::vector<ChannelTarget> targets = ChannelTargets(module, layers);
  const std::vector<std::vector<const ChannelTarget*>> parts = Cut(module, targets);
  const MomentsRun run(module, files, progress);
  const IntegerRange range = bits == 4 ? IntegerRange{-8, 7} : IntegerRange{-127, 127};
  static constexpr float kAsGiven[] = {1}, kNear[] = {1, 0.8f, 0.9f, 1.1f, 1.2f, 1.35f};
  const std::span<const float> factors = bits == 4 ? std::span<const float>(kNear) : std::span<const float>(kAsGiven);
  size_t done = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    DT_ASSIGN_OR_RETURN(const auto moments, run.Gather(InputsOf(parts[p]), p, parts.size()));
    for (const ChannelTarget* t : parts[p]) {
      const LayerMoments sum = SumOf(moments, t->inputs);
      ++done;
      if (sum.rows() == 0) continue;
      const uint32_t weight = t->first->weight;
      const Constant source = module.constants[weight];
      std::vector<float> scales = *t->first->scales;
      const size_t groups = sum.groups().size(), rows = scales.size() / groups, width = static_cast<size_t>(sum.groups()[0].width());
      std::vector<int8_t> integers(scales.size() * width);
      const auto round = [&](size_t g, struct pthreadpool* pool) {
        RoundGroup(source, static_cast<int64_t>(g * rows), std::span(scales).subspan(g * rows, rows), std::span(t->first->least).subspan(g * rows, rows), range,
                   factors, Compensation(sum.groups()[g].Centered()), integers.data() + g * rows * width, pool);
      };
      if (groups == 1) round(0, run.pool());
      else ParallelFor(run.pool(), static_cast<int64_t>(groups), [&](int64_t g) { round(static_cast<size_t>(g), nullptr); });
      for (std::vector<float>* s : t->scales) *s = scales;
      weights.SetPerChannel(weight, 0, std::move(scales), bits, std::move(integers));
      if (progress) progress("rounding weights", done, targets.size());
    }
  }
  return OkStatus();
}

}  // namespace dovetail
