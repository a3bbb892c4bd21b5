#include "quant/layer_moments.h"

#include <algorithm>

#include "kernels/parallel.h"
#include "quant/convolution_taps.h"

namespace dovetail {
namespace {

constexpr int64_t kMostPositions = 4096;              // of a convolution's result, of each image
constexpr int64_t kMostElements = int64_t{4} << 20;   // gathered for one group
constexpr int64_t kLeastPositions = 256;

int64_t Groups(const Node& layer) { return layer.op == OpId::kConvolution ? GetAttr(layer, "groups").Int(1) : 1; }

// Columns of the matrix that a group's weights are.
int64_t Width(const Graph& graph, const Node& layer) {
  const Shape& w = graph.type(layer.operands[1]).shape;
  if (layer.op == OpId::kMatmul) return w[0].value();
  int64_t width = 1;
  for (size_t i = 1; i < w.rank(); ++i) width *= w[i].value();
  return width;
}

// What each tap of `channels` planes meets at every step-th position: [channels * taps, positions].
void GatherColumns(const ConvolutionTaps& t, const float* input, int64_t channels, int64_t step, int64_t positions, float* to) {
  const WindowDim &h = t.window[0], &w = t.window[1];
  for (int64_t c = 0; c < channels; ++c, input += t.in_h * t.in_w)
    for (int64_t ky = 0; ky < h.kernel; ++ky)
      for (int64_t kx = 0; kx < w.kernel; ++kx)
        for (int64_t i = 0; i < positions; ++i) {
          const int64_t at = i * step, y = at / t.out_w * h.stride + ky * h.dilation - h.padding, x = at % t.out_w * w.stride + kx * w.dilation - w.padding;
          *to++ = y >= 0 && y < t.in_h && x >= 0 && x < t.in_w ? input[y * t.in_w + x] : 0.0f;
        }
}

}  // namespace

LayerMoments::LayerMoments(const Graph& graph, const Node& layer) : groups_(static_cast<size_t>(Groups(layer)), InputMoments(Width(graph, layer))) {}

size_t LayerMoments::BytesFor(const Graph& graph, const Node& layer) {
  const size_t width = static_cast<size_t>(Width(graph, layer));
  return static_cast<size_t>(Groups(layer)) * width * width * sizeof(float);
}

void LayerMoments::Add(const Graph& graph, const Node& layer, const TensorView& input, struct pthreadpool* pool) {
  const float* x = input.as<float>();
  if (input.numel() == 0) return;
  if (layer.op != OpId::kConvolution) return groups_[0].Add(x, input.numel() / groups_[0].width(), pool);
  if (!AllFinite({x, static_cast<size_t>(input.numel())})) return;
  const ConvolutionTaps taps = ConvolutionTaps::Of(graph, layer, input);
  const int64_t area = taps.out_h * taps.out_w, width = groups_[0].width(), channels = input.sizes[1] / static_cast<int64_t>(groups_.size());
  if (area == 0) return;
  const int64_t most = std::clamp(kMostElements / width, kLeastPositions, kMostPositions);
  // An odd step meets all columns of a result whose width is even.
  const int64_t step = area <= most ? 1 : ((area + most - 1) / most) | 1, positions = (area + step - 1) / step;
  const bool by_group = groups_.size() > 1;
  for (int64_t image = 0; image < input.sizes[0]; ++image)
    ParallelFor(by_group ? pool : nullptr, static_cast<int64_t>(groups_.size()), [&](int64_t g) {
      std::vector<float> columns(static_cast<size_t>(width * positions));
      GatherColumns(taps, x + (image * input.sizes[1] + g * channels) * taps.in_h * taps.in_w, channels, step, positions, columns.data());
      groups_[static_cast<size_t>(g)].AddColumns(columns.data(), positions, by_group ? nullptr : pool);
    });
}

void LayerMoments::Merge(const LayerMoments& other) {
  for (size_t g = 0; g < groups_.size(); ++g) groups_[g].Merge(other.groups_[g]);
}

LayerInput LayerInputOf(const Module& module, size_t graph, NodeId layer) {
  const Node& n = module.graphs[graph]->node(layer);
  return {graph, n.operands[0], n.op == OpId::kConvolution ? layer : kNone};
}

Result<std::map<LayerInput, LayerMoments>> MomentsRun::Gather(const std::map<LayerInput, NodeId>& layers, size_t part, size_t parts) const {
  std::map<LayerInput, LayerMoments> moments;
  std::map<std::pair<size_t, ValueId>, std::vector<LayerInput>> readers;
  for (const auto& [input, layer] : layers) {
    const Graph& graph = *module_.graphs[input.graph];
    moments.emplace(input, LayerMoments(graph, graph.node(layer)));
    readers[{input.graph, input.value}].push_back(input);
  }
  DT_ASSIGN_OR_RETURN(StateStore states, InitStates(module_));
  for (size_t f = 0; f < files_.size(); ++f) {
    DT_ASSIGN_OR_RETURN(CalibrationCall call, LoadCall(module_, files_[f]));
    const Graph& graph = *module_.graphs[call.graph];
    const auto see = [&](ValueId v, const OwnedTensor& t) {
      const auto it = readers.find({call.graph, v});
      if (it == readers.end()) return;
      for (const LayerInput& input : it->second) moments.at(input).Add(graph, graph.node(layers.at(input)), t.view(), pool());
    };
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      if (call.inputs[i].type.dtype == DType::kF32) see(graph.inputs[i], call.inputs[i]);
    Result<std::vector<OwnedTensor>> outputs = Interpret(module_, graph, call.inputs, states, run_.With([&](const Graph&, ValueId v, const OwnedTensor& t) { see(v, t); }));
    if (!outputs.ok()) return std::move(outputs).status().While(StrCat("calibrating on '", files_[f], "'"));
    if (progress_) progress_("calibrating", part * files_.size() + f + 1, parts * files_.size());
  }
  return moments;
}

}  // namespace dovetail
