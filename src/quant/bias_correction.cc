#include "quant/bias_correction.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/convolution_taps.h"
#include "quant/static_params.h"

namespace dovetail {
namespace {

double Finite(float v) { return std::isfinite(v) ? static_cast<double>(v) : 0; }

}  // namespace

void InputMeans::Add(const Graph& graph, const Node& layer, const TensorView& input) {
  const float* x = input.as<float>();
  if (layer.op != OpId::kConvolution) {
    const int64_t width = input.sizes[input.rank - 1u], rows = width ? input.numel() / width : 0;
    sums_.resize(static_cast<size_t>(width));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t k = 0; k < width; ++k) sums_[static_cast<size_t>(k)] += Finite(*x++);
    positions_ += static_cast<double>(rows);
    return;
  }
  if (GetAttr(layer, "transposed").Bool()) return;
  const ConvolutionTaps t = ConvolutionTaps::Of(graph, layer, input);
  const WindowDim &h = t.window[0], &w = t.window[1];
  const int64_t channels = input.sizes[1], area = t.count();
  sums_.resize(static_cast<size_t>(channels * area));
  for (int64_t plane = 0; plane < input.sizes[0] * channels; ++plane, x += t.in_h * t.in_w)
    for (int64_t tap = 0; tap < area; ++tap) {
      const int64_t first_y = tap / w.kernel * h.dilation - h.padding, first_x = tap % w.kernel * w.dilation - w.padding;
      double sum = 0;
      for (int64_t i = 0; i < t.out_h; ++i) {
        const int64_t y = first_y + i * h.stride;
        if (y < 0 || y >= t.in_h) continue;
        for (int64_t j = 0; j < t.out_w; ++j) {
          const int64_t at = first_x + j * w.stride;
          if (at >= 0 && at < t.in_w) sum += Finite(x[y * t.in_w + at]);
        }
      }
      sums_[static_cast<size_t>(plane % channels * area + tap)] += sum;
    }
  positions_ += static_cast<double>(input.sizes[0] * t.out_h * t.out_w);
}

std::vector<double> InputMeans::Means() const {
  if (positions_ == 0) return {};
  std::vector<double> means = sums_;
  for (double& m : means) m /= positions_;
  return means;
}

std::vector<double> BiasCorrection(const Constant& weight, const Constant& integers, std::span<const float> scales, std::span<const double> means) {
  std::vector<double> correction(scales.size(), 0);
  if (means.empty()) return correction;
  FloatRows rows(weight);
  std::vector<int8_t> rounded(integers.nbytes());
  integers.CopyTo(reinterpret_cast<std::byte*>(rounded.data()));
  const int8_t* q = rounded.data();
  const size_t width = static_cast<size_t>(rows.width()), groups = means.size() / width;
  for (size_t r = 0; r < scales.size(); ++r) {
    const std::span<const float> row = rows.row(static_cast<int64_t>(r));
    const std::span<const double> met = means.subspan(r * groups / scales.size() * width, width);
    for (size_t k = 0; k < width; ++k) {
      const double stands_for = static_cast<double>(*q++) * static_cast<double>(scales[r]);
      correction[r] += (static_cast<double>(row[k]) - stands_for) * met[k];
    }
  }
  return correction;
}

ValueId RoundedBias(Builder& b, const LayerWeight& layer, std::span<const double> means) {
  const std::vector<Constant>& constants = b.module().constants;
  const std::span<const float> scales = layer.scales;
  const std::vector<double> correction = BiasCorrection(constants[layer.weight], constants[layer.integers], scales, means);
  std::vector<float> values = layer.bias == kNone ? std::vector<float>(scales.size()) : FloatsOf(constants[layer.bias]);
  for (size_t i = 0; i < values.size(); ++i) {
    const double step = static_cast<double>(layer.input_scale) * static_cast<double>(scales[i]), own = static_cast<double>(values[i]) / step;
    const double steps = std::nearbyint(own + correction[i] / step);
    values[i] = static_cast<float>((std::abs(steps) <= kMostBias ? steps : std::nearbyint(own)) * step);
  }
  if (layer.bias == kNone && std::all_of(values.begin(), values.end(), [](float v) { return v == 0; })) return kNone;
  std::vector<std::byte> bytes(values.size() * sizeof(float));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  const std::string name = layer.bias == kNone ? constants[layer.weight].name + ".correction" : constants[layer.bias].name + ".rounded";
  return b.AddConst(name, TensorType(DType::kF32, {Dim(static_cast<int64_t>(values.size()))}), std::move(bytes));
}

}  // namespace dovetail
