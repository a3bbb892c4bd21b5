#include "quant/bias_correction.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/quantization.h"
#include "ops/window.h"
#include "quant/static_params.h"

namespace dovetail {
namespace {

struct Taps {
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1, size = 1;  // size: of the input
  int64_t positions() const { return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1; }
};

int64_t Argument(const Node& n, std::string_view name, size_t dim, size_t spatial, int64_t fallback) {
  const Result<int64_t> v = WindowArg(GetAttr(n, name), dim, spatial, fallback, 0, name);
  DT_CHECK(v.ok());  // the graph is valid
  return *v;
}

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
  const size_t spatial = input.rank - 2u;
  Taps taps[2];
  for (size_t i = 0; i < spatial; ++i) {
    const auto argument = [&](std::string_view name, int64_t fallback) { return Argument(layer, name, i, spatial, fallback); };
    taps[2 - spatial + i] = {graph.type(layer.operands[1]).shape[2 + i].value(), argument("stride", 1), argument("padding", 0), argument("dilation", 1),
                             input.sizes[2 + i]};
  }
  const auto [h, w] = taps;
  const int64_t channels = input.sizes[1], area = h.kernel * w.kernel;
  sums_.resize(static_cast<size_t>(channels * area));
  for (int64_t plane = 0; plane < input.sizes[0] * channels; ++plane, x += h.size * w.size)
    for (int64_t tap = 0; tap < area; ++tap) {
      const int64_t first_y = tap / w.kernel * h.dilation - h.padding, first_x = tap % w.kernel * w.dilation - w.padding;
      double sum = 0;
      for (int64_t i = 0; i < h.positions(); ++i) {
        const int64_t y = first_y + i * h.stride;
        if (y < 0 || y >= h.size) continue;
        for (int64_t j = 0; j < w.positions(); ++j) {
          const int64_t at = first_x + j * w.stride;
          if (at >= 0 && at < w.size) sum += Finite(x[y * w.size + at]);
        }
      }
      sums_[static_cast<size_t>(plane % channels * area + tap)] += sum;
    }
  positions_ += static_cast<double>(input.sizes[0] * h.positions() * w.positions());
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
