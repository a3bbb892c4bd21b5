#include "quant/layer_moments.h"

#include "quant/compensate.h"
#include "quant/static_samples.h"

namespace dovetail {
namespace {

using namespace samples;

struct Sample {
  std::string layer, input;
  Shape input_shape;
  std::string weight;
  size_t weights;
  std::string result;
};

std::vector<Sample> Samples() {
  const auto convolution = [](const std::string& stride, const std::string& padding, const std::string& dilation, int groups) {
    return StrCat("convolution %x, %w, _ {stride=[", stride, "], padding=[", padding, "], dilation=[", dilation,
                  "], transposed=false, output_padding=[0], groups=", groups, "}");
  };
  return {{"linear %x, %w, _", "2,5,6", {2, 5, 6}, "4,6", 24, "2,5,4"},
          {"matmul %x, %w", "2,5,6", {2, 5, 6}, "6,4", 24, "2,5,4"},
          {convolution("1,1", "1,1", "1,1", 1), "2,3,6,5", {2, 3, 6, 5}, "4,3,3,3", 108, "2,4,6,5"},
          {convolution("2,3", "0,2", "2,1", 2), "2,4,9,8", {2, 4, 9, 8}, "6,2,3,2", 72, "2,6,3,4"},
          {convolution("1,1", "1,1", "1,1", 4), "2,4,5,5", {2, 4, 5, 5}, "4,1,3,3", 36, "2,4,5,5"},
          {convolution("2", "1", "1", 1), "2,3,8", {2, 3, 8}, "5,3,3", 45, "2,5,4"}};
}

Module ModuleOf(const Sample& s) {
  return Parsed("module {\n" + ConstantLine("w", s.weight, Normal(s.weights, 3)) + "  graph @f(%x: f32[" + s.input + "]) {\n    %w = const @w : f32[" + s.weight +
                "]\n    %y = " + s.layer + " : f32[" + s.result + "]\n    return %y\n  }\n}\n");
}

size_t CountOf(const Shape& shape) { return static_cast<size_t>(shape.numel().value()); }

// With M the moments of what the weights w of a channel meet, the squares of its results sum to w^T M w.
TEST(LayerMoments, GiveTheSquaresOfResults) {
  for (const Sample& s : Samples()) {
    SCOPED_TRACE(s.layer);
    const Module module = ModuleOf(s);
    const Graph& graph = *module.graphs[0];
    const Node& node = *graph.producer(graph.outputs[0]);
    LayerMoments moments(graph, node), part(graph, node);
    const size_t channels = CountOf(module.constants[0].type.shape) / static_cast<size_t>(moments.groups()[0].width());
    EXPECT_EQ(LayerMoments::BytesFor(graph, node), moments.groups().size() * moments.groups()[0].sums().size() * sizeof(float));
    std::vector<double> want(channels), totals(channels);
    for (unsigned call = 0; call < 3; ++call) {
      const OwnedTensor x = Floats(s.input_shape, Normal(CountOf(s.input_shape), 20 + call));
      (call == 2 ? part : moments).Add(graph, node, x.view());
      auto result = RunOnce(module, {Floats(s.input_shape, Values(x))});
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      const TensorView y = (*result)[0].view();
      const int64_t inner = node.op == OpId::kConvolution ? y.stride(1) : 1;
      for (int64_t i = 0; i < y.numel(); ++i) want[static_cast<size_t>(i / inner) % channels] += std::pow(static_cast<double>(y.as<float>()[i]), 2);
    }
    moments.Merge(part);
    const std::vector<float> w = Normal(s.weights, 3);
    const size_t width = static_cast<size_t>(moments.groups()[0].width());
    for (size_t c = 0; c < channels; ++c) {
      const std::vector<float>& m = moments.groups()[c * moments.groups().size() / channels].sums();
      const auto weight = [&](size_t k) { return static_cast<double>(node.op == OpId::kMatmul ? w[k * channels + c] : w[c * width + k]); };
      double got = 0;
      for (size_t i = 0; i < width; ++i)
        for (size_t k = 0; k < width; ++k) got += weight(i) * static_cast<double>(m[i * width + k]) * weight(k);
      EXPECT_NEAR(got, want[c], 1e-3 * want[c]) << "channel " << c;
    }
  }
}

TEST(LayerMoments, OfLargeImagesTakePositionsSpreadOverAll) {
  const Sample s{"convolution %x, %w, _ {stride=[1,1], padding=[0,0], dilation=[1,1], transposed=false, output_padding=[0,0], groups=1}", "1,1,200,200",
                 {1, 1, 200, 200}, "1,1,1,1", 1, "1,1,200,200"};
  const Module module = ModuleOf(s);
  const Graph& graph = *module.graphs[0];
  LayerMoments moments(graph, *graph.producer(graph.outputs[0]));
  std::vector<float> x(200 * 200);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 200) + static_cast<float>(i / 200);
  moments.Add(graph, *graph.producer(graph.outputs[0]), Floats(s.input_shape, x).view());
  double mean = 0;
  for (float v : x) mean += static_cast<double>(v * v) / static_cast<double>(x.size());
  EXPECT_LT(moments.rows(), 5000);
  EXPECT_NEAR(static_cast<double>(moments.groups()[0].sums()[0]) / static_cast<double>(moments.rows()), mean, 0.01 * mean);
}

TEST(LayerMoments, LeaveOutWhatIsNotFinite) {
  for (const Sample& s : Samples()) {
    const Module module = ModuleOf(s);
    const Graph& graph = *module.graphs[0];
    const Node& node = *graph.producer(graph.outputs[0]);
    LayerMoments moments(graph, node);
    moments.Add(graph, node, Floats(s.input_shape, std::vector<float>(CountOf(s.input_shape), NAN)).view());
    EXPECT_EQ(moments.rows(), 0) << s.layer;
  }
}

// Variance of the layer's error on calls: what its bias cannot make up for. By output channel.
std::vector<double> Variances(const Module& module, const Sample& s, std::span<const std::vector<float>> calls, const std::vector<float>& rounded) {
  Module other = ModuleOf(s);
  std::vector<std::byte> bytes(rounded.size() * sizeof(float));
  std::memcpy(bytes.data(), rounded.data(), bytes.size());
  other.constants[0] = MakeOwnedConstant("w", other.constants[0].type, std::move(bytes));
  std::vector<double> sums, squares;
  double count = 0;
  for (const std::vector<float>& x : calls) {
    auto exact = RunOnce(module, {Floats(s.input_shape, x)}), shifted = RunOnce(other, {Floats(s.input_shape, x)});
    EXPECT_TRUE(exact.ok() && shifted.ok());
    const TensorView y = (*exact)[0].view(), z = (*shifted)[0].view();
    const bool convolution = s.layer[0] == 'c';
    const size_t inner = convolution ? static_cast<size_t>(y.stride(1)) : 1, channels = static_cast<size_t>(y.sizes[convolution ? 1 : y.rank - 1u]);
    sums.resize(channels);
    squares.resize(channels);
    for (int64_t i = 0; i < y.numel(); ++i) {
      const double e = static_cast<double>(y.as<float>()[i]) - static_cast<double>(z.as<float>()[i]);
      sums[static_cast<size_t>(i) / inner % channels] += e;
      squares[static_cast<size_t>(i) / inner % channels] += e * e;
    }
    count += static_cast<double>(y.numel()) / static_cast<double>(channels);
  }
  for (size_t c = 0; c < sums.size(); ++c) squares[c] = squares[c] / count - sums[c] * sums[c] / count / count;
  return squares;
}

std::vector<float> RoundedWeights(const Module& module, const QuantizedWeight& w, std::span<const float> scales) {
  std::vector<int8_t> q(module.constants[w.data].nbytes());
  module.constants[w.data].CopyTo(reinterpret_cast<std::byte*>(q.data()));
  std::vector<float> values(q.size());
  for (size_t i = 0; i < q.size(); ++i) values[i] = static_cast<float>(q[i]) * scales[i * scales.size() / q.size()];
  return values;
}

TEST(RoundChannels, ErrLessOnSmoothImagesThanNearest) {
  for (const Sample& s : Samples()) {
    if (s.layer[0] != 'c' || s.input_shape.rank() != 4) continue;
    SCOPED_TRACE(s.layer);
    for (int bits : {4, 8}) {
      Module module = ModuleOf(s);
      const Graph& graph = *module.graphs[0];
      const NodeId node = graph.value(graph.outputs[0]).producer;
      // Neighbours are alike, and so are channels; the mean is far from zero.
      const TempFolder folder;
      std::vector<std::string> files;
      std::vector<std::vector<float>> calls;
      for (unsigned call = 0; call < 12; ++call) {
        std::vector<float> x = Normal(CountOf(s.input_shape), 50 + call, 0.1f);
        const std::vector<float> waves = Normal(8, 80 + call);
        const size_t width = static_cast<size_t>(s.input_shape[3].value());
        for (size_t i = 0; i < x.size(); ++i)
          x[i] += 5 + 3 * std::sin(static_cast<float>(i % width) * waves[0] + static_cast<float>(i / width) * waves[1] + waves[2]);
        calls.push_back(x);
        files.push_back(folder.Write(StrCat(100 + call, ".npz"), {{"x", Floats(s.input_shape, x)}}));
      }
      WeightQuantizer quantizer(module), nearest(module);
      std::vector<float> scales = *quantizer.ChannelScales(0, 0);
      if (bits == 4)
        for (float& scale : scales) scale *= 127.0f / 7;
      const auto plain = nearest.PerChannel(0, 0, scales, bits);
      ASSERT_TRUE(plain.ok());
      const std::vector<double> before = Variances(module, s, calls, RoundedWeights(module, *plain, scales));
      // A bound for one channel from below.
      std::vector<float> least(scales.size(), 0);
      least[1] = scales[1] * 1.5f;
      if (bits == 8) least = scales;
      const ChannelLayer layer{0, node, 0, &scales, least};
      const Status status = RoundChannelsOnCalls(module, {&layer, 1}, bits, files, nullptr, quantizer);
      ASSERT_TRUE(status.ok()) << status.ToString();
      for (size_t c = 0; c < scales.size(); ++c) EXPECT_GE(scales[c], least[c]);
      const size_t constants = module.constants.size();
      const auto rounded = quantizer.PerChannel(0, 0, scales, bits);
      ASSERT_TRUE(rounded.ok());
      EXPECT_EQ(module.constants.size(), constants) << "not the integers that were chosen";
      const std::vector<double> after = Variances(module, s, calls, RoundedWeights(module, *rounded, scales));
      double sum_before = 0, sum_after = 0;
      for (size_t c = 0; c < before.size(); ++c) {
        if (c == 1) continue;
        sum_before += before[c];
        sum_after += after[c];
      }
      // Nine integers of 8 bits for each channel leave little to choose.
      EXPECT_LT(sum_after, sum_before * (bits == 8 && s.weights == 36 ? 1.1 : 0.8)) << bits << " bits";
    }
  }
}

TEST(RoundChannels, LayersThatNoCallReachedKeepTheirScales) {
  const Sample s = Samples()[2];
  Module module = ModuleOf(s);
  const TempFolder folder;
  const std::vector<std::string> files = {folder.Write("bad.npz", {{"x", Floats(s.input_shape, std::vector<float>(CountOf(s.input_shape), INFINITY))}})};
  WeightQuantizer quantizer(module);
  std::vector<float> scales = *quantizer.ChannelScales(0, 0);
  const std::vector<float> given = scales;
  const ChannelLayer layer{0, module.graphs[0]->value(module.graphs[0]->outputs[0]).producer, 0, &scales, given};
  ASSERT_TRUE(RoundChannelsOnCalls(module, {&layer, 1}, 4, files, nullptr, quantizer).ok());
  EXPECT_EQ(scales, given);
  EXPECT_EQ(module.constants.size(), 1u);
}

}  // namespace
}  // namespace dovetail
