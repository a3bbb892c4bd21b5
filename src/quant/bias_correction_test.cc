#include "quant/bias_correction.h"

#include "ops/quantization.h"
#include "quant/static_samples.h"
#include "quant/weights.h"

namespace dovetail {
namespace {

using namespace samples;

// The correction is the mean, over all results of all calls, of the layer's result less that of the layer with rounded weights.
void ExpectMeanDifference(const std::string& layer, const std::string& input, Shape input_shape, const std::string& weight, size_t weights,
                          const std::string& result) {
  SCOPED_TRACE(layer);
  size_t count = 1;
  for (Dim d : input_shape) count *= static_cast<size_t>(d.value());
  const auto text = [&](const std::vector<float>& w) {
    return "module {\n" + ConstantLine("w", weight, w) + "  graph @f(%x: f32[" + input + "]) {\n    %w = const @w : f32[" + weight + "]\n    %y = " + layer +
           " : f32[" + result + "]\n    return %y\n  }\n}\n";
  };
  Module module = Parsed(text(Normal(weights, 3)));
  const Graph& graph = *module.graphs[0];
  const Node& node = *graph.producer(graph.outputs[0]);
  WeightQuantizer quantizer(module);
  const auto scales = quantizer.ChannelScales(0, 0);
  ASSERT_TRUE(scales.ok());
  std::vector<float> coarse = *scales;
  for (float& s : coarse) s *= 8;
  const auto integers = quantizer.PerChannel(0, 0, coarse);
  ASSERT_TRUE(integers.ok());
  std::vector<float> rounded(reinterpret_cast<const float*>(module.constants[0].bytes().data()),
                             reinterpret_cast<const float*>(module.constants[0].bytes().data() + module.constants[0].bytes().size()));
  for (size_t i = 0; i < rounded.size(); ++i) {
    const float s = coarse[i * coarse.size() / rounded.size()];
    rounded[i] = static_cast<float>(QuantizeElement(rounded[i], s, 0, {-127, 127})) * s;
  }
  const Module other = Parsed(text(rounded));

  InputMeans means;
  std::vector<double> want(coarse.size());
  double positions = 0;
  for (unsigned call = 0; call < 3; ++call) {
    std::vector<float> x = Normal(count, 20 + call);
    for (size_t i = 0; i < x.size(); ++i) x[i] += static_cast<float>(i % 7);
    means.Add(graph, node, Floats(input_shape, x).view());
    auto exact = RunOnce(module, {Floats(input_shape, x)}), shifted = RunOnce(other, {Floats(input_shape, x)});
    ASSERT_TRUE(exact.ok() && shifted.ok()) << exact.status().ToString();
    const TensorView y = (*exact)[0].view(), z = (*shifted)[0].view();
    const int64_t inner = node.op == OpId::kConvolution ? y.stride(1) : 1;
    for (int64_t i = 0; i < y.numel(); ++i)
      want[static_cast<size_t>(i / inner) % want.size()] += static_cast<double>(y.as<float>()[i]) - static_cast<double>(z.as<float>()[i]);
    positions += static_cast<double>(y.numel()) / static_cast<double>(want.size());
  }
  const std::vector<double> got = BiasCorrection(module.constants[0], module.constants[integers->data], coarse, means.Means());
  ASSERT_EQ(got.size(), want.size());
  double most = 0;
  for (size_t c = 0; c < want.size(); ++c) {
    EXPECT_NEAR(got[c], want[c] / positions, 1e-4) << "channel " << c;
    most = std::max(most, std::abs(got[c]));
  }
  EXPECT_GE(most, 0.05);
}

TEST(BiasCorrection, IsTheMeanDifference) {
  ExpectMeanDifference("linear %x, %w, _", "2,5,6", {2, 5, 6}, "4,6", 24, "2,5,4");
  ExpectMeanDifference("convolution %x, %w, _ {stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=1}", "2,3,6,5",
                       {2, 3, 6, 5}, "4,3,3,3", 108, "2,4,6,5");
  ExpectMeanDifference("convolution %x, %w, _ {stride=[2,3], padding=[0,2], dilation=[2,1], transposed=false, output_padding=[0,0], groups=2}", "1,4,9,8",
                       {1, 4, 9, 8}, "6,2,3,2", 72, "1,6,3,4");
  ExpectMeanDifference("convolution %x, %w, _ {stride=[1,1], padding=[1,1], dilation=[1,1], transposed=false, output_padding=[0,0], groups=4}", "2,4,5,5",
                       {2, 4, 5, 5}, "4,1,3,3", 36, "2,4,5,5");
  ExpectMeanDifference("convolution %x, %w, _ {stride=[2], padding=[1], dilation=[1], transposed=false, output_padding=[0], groups=1}", "2,3,8", {2, 3, 8},
                       "5,3,3", 45, "2,5,4");
}

TEST(BiasCorrection, NothingSeenChangesNothing) {
  Module module = Parsed("module {\n" + ConstantLine("w", "2,3", Normal(6, 1)) +
                         "  graph @f(%x: f32[1,3]) {\n    %w = const @w : f32[2,3]\n    %y = linear %x, %w, _ : f32[1,2]\n    return %y\n  }\n}\n");
  EXPECT_TRUE(InputMeans().Means().empty());
  EXPECT_EQ(BiasCorrection(module.constants[0], module.constants[0], std::vector<float>{1, 1}, {}), (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace dovetail
