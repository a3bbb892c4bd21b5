#include "quant/gptq.h"

#include <gtest/gtest.h>

#include <random>

#include "ops/quantization.h"
#include "quant/block_testing.h"

namespace dovetail {
namespace {

constexpr int64_t kWidth = 96, kRows = 40, kBlock = 32;

struct Layer {
  std::vector<float> weight = std::vector<float>(kRows * kWidth), inputs;  // inputs [n, kWidth], with strongly correlated columns
  int64_t n = 400;
  Constant constant;

  Layer() {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (float& w : weight) w = normal(random);
    std::vector<float> mix(12 * kWidth);
    for (float& m : mix) m = normal(random);
    for (int64_t i = 0; i < n; ++i) {
      float hidden[12];
      for (float& h : hidden) h = normal(random);
      for (int64_t k = 0; k < kWidth; ++k) {
        float x = normal(random) * 0.05f;
        for (int64_t h = 0; h < 12; ++h) x += hidden[h] * mix[static_cast<size_t>(h * kWidth + k)];
        inputs.push_back(x);
      }
    }
    std::vector<std::byte> bytes(weight.size() * 4);
    std::memcpy(bytes.data(), weight.data(), bytes.size());
    constant = MakeOwnedConstant("w", TensorType(DType::kF32, {Dim(kRows), Dim(kWidth)}), std::move(bytes));
  }

  // Mean square of the layer's error on its inputs.
  template <class Dequantized>
  double Error(Dequantized&& dequantized) const {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t r = 0; r < kRows; ++r) {
        double e = 0;
        for (int64_t k = 0; k < kWidth; ++k)
          e += static_cast<double>(inputs[static_cast<size_t>(i * kWidth + k)] * (weight[static_cast<size_t>(r * kWidth + k)] - dequantized(r, k)));
        sum += e * e;
      }
    return sum / static_cast<double>(n * kRows);
  }
};

float ValueOf(const PackedBlocks& p, int64_t r, int64_t k) {
  return static_cast<float>(Nibble(p.data.data() + r * kWidth / 2, k)) * BFloat16ToFloat(p.scales[static_cast<size_t>(r * (kWidth / kBlock) + k / kBlock)]);
}

TEST(Gptq, ErrsLessOnCorrelatedInputsThanRoundingToNearest) {
  const Layer layer;
  Module module;
  module.constants.push_back(layer.constant);
  WeightQuantizer nearest(module);
  const auto q = nearest.PerBlock(0, kBlock);
  ASSERT_TRUE(q.ok());
  std::vector<std::byte> bytes(module.constants[q->data].nbytes()), scales(module.constants[q->scale].nbytes());
  module.constants[q->data].CopyTo(bytes.data());
  module.constants[q->scale].CopyTo(scales.data());
  PackedBlocks plain;
  plain.data.assign(reinterpret_cast<uint8_t*>(bytes.data()), reinterpret_cast<uint8_t*>(bytes.data()) + bytes.size());
  plain.scales.assign(reinterpret_cast<uint16_t*>(scales.data()), reinterpret_cast<uint16_t*>(scales.data()) + scales.size() / 2);

  InputMoments moments(kWidth);
  moments.Add(layer.inputs.data(), layer.n);
  const PackedBlocks packed = RoundCompensating(layer.constant, kBlock, Compensation(moments));
  const double before = layer.Error([&](int64_t r, int64_t k) { return ValueOf(plain, r, k); });
  const double after = layer.Error([&](int64_t r, int64_t k) { return ValueOf(packed, r, k); });
  EXPECT_LT(after, before / 4) << before;
}

TEST(Gptq, ErrsLessThanNearestWithScalesThatAreMultiplesOfOne) {
  const Layer layer;
  const Result<PackedBlocks> plain = ExpandedBlocks(layer.constant, kBlock);
  ASSERT_TRUE(plain.ok());
  InputMoments moments(kWidth);
  moments.Add(layer.inputs.data(), layer.n);
  const PackedBlocks packed = RoundCompensating(layer.constant, kBlock, Compensation(moments), nullptr, BlockScales::kExpanded);
  const double before = layer.Error([&](int64_t r, int64_t k) { return ValueOf(*plain, r, k); });
  const double after = layer.Error([&](int64_t r, int64_t k) { return ValueOf(packed, r, k); });
  EXPECT_LT(after, before / 4) << before;
  constexpr int64_t kBlocks = kWidth / kBlock;
  for (int64_t r = 0; r < kRows; ++r) {
    EXPECT_TRUE(testing::AreMultiplesOfOne({plain->scales.data() + r * kBlocks, kBlocks})) << "row " << r;
    EXPECT_TRUE(testing::AreMultiplesOfOne({packed.scales.data() + r * kBlocks, kBlocks})) << "row " << r;
  }
}

TEST(Gptq, NearestIntegersReachTheWeights) {
  const Layer layer;
  const Result<PackedBlocks> nearest = ExpandedBlocks(layer.constant, kBlock);
  ASSERT_TRUE(nearest.ok());
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t k = 0; k < kWidth; ++k) {
      const float step = BFloat16ToFloat(nearest->scales[static_cast<size_t>(r * (kWidth / kBlock) + k / kBlock)]);
      EXPECT_NEAR(ValueOf(*nearest, r, k), layer.weight[static_cast<size_t>(r * kWidth + k)], step * 1.6f) << r << ", " << k;
    }
}

// Two rows say nothing of most directions, in which the weights stay near their values.
TEST(Gptq, FewRowsMoveWeightsLittle) {
  const Layer layer;
  const Result<PackedBlocks> nearest = ExpandedBlocks(layer.constant, kBlock);
  ASSERT_TRUE(nearest.ok());
  InputMoments moments(kWidth);
  moments.Add(layer.inputs.data(), 2);
  const Compensation compensation(moments);
  const auto moved = [&](const PackedBlocks& packed) {
    double sum = 0;
    for (int64_t r = 0; r < kRows; ++r)
      for (int64_t k = 0; k < kWidth; ++k) sum += std::pow(static_cast<double>(ValueOf(packed, r, k) - layer.weight[static_cast<size_t>(r * kWidth + k)]), 2);
    return sum;
  };
  for (const BlockScales kind : {BlockScales::kFree, BlockScales::kExpanded})
    EXPECT_LT(moved(RoundCompensating(layer.constant, kBlock, compensation, nullptr, kind)), 1.25 * moved(*nearest));
}

TEST(Gptq, MomentsMergeAndLeaveOutWhatIsNotFinite) {
  const Layer layer;
  InputMoments whole(kWidth), first(kWidth), second(kWidth);
  whole.Add(layer.inputs.data(), layer.n);
  first.Add(layer.inputs.data(), 100);
  std::vector<float> rest(layer.inputs.begin() + 100 * kWidth, layer.inputs.end());
  rest.insert(rest.end(), kWidth, NAN);
  second.Add(rest.data(), layer.n - 99);
  first.Merge(second);
  EXPECT_EQ(first.rows(), layer.n);
  for (size_t i = 0; i < whole.sums().size(); ++i) EXPECT_NEAR(first.sums()[i], whole.sums()[i], 1e-3 * (1 + std::abs(whole.sums()[i]))) << i;
}

TEST(Gptq, InputsOfZerosGiveFiniteWeights) {
  const Layer layer;
  InputMoments moments(kWidth);
  const std::vector<float> zeros(kWidth * 3, 0);
  moments.Add(zeros.data(), 3);
  const PackedBlocks packed = RoundCompensating(layer.constant, kBlock, Compensation(moments));
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t k = 0; k < kWidth; ++k) EXPECT_NEAR(ValueOf(packed, r, k), layer.weight[static_cast<size_t>(r * kWidth + k)], 0.5);
}

}  // namespace
}  // namespace dovetail
