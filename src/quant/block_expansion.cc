#include "quant/block_expansion.h"

#include <cfloat>
#include <cmath>

#include "ops/quantization.h"

namespace dovetail {
namespace {

constexpr IntegerRange kFourBits = {-8, 7};

// Of the squared differences, each times its importance, if that is not empty. In lanes, so that the compiler can use vectors.
double ErrorOf(std::span<const float> w, float scale, std::span<const float> importance = {}) {
  constexpr float kWhole = 0x1.8p23f;  // from here on floats are whole numbers
  constexpr size_t kLanes = 8;
  const float inverse = 1 / scale, low = kFourBits.min, high = kFourBits.max;
  const auto squared = [&](size_t i) {
    const float v = w[i];
    float q = v * inverse;
    q = q < low ? low : q;
    q = q > high ? high : q;
    const float e = v - (q + kWhole - kWhole) * scale;
    return e * e;
  };
  const auto sum_of = [&](const auto& error) {
    float lanes[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= w.size(); i += kLanes)
      for (size_t k = 0; k < kLanes; ++k) lanes[k] += error(i + k);
    double sum = 0;
    for (; i < w.size(); ++i) sum += static_cast<double>(error(i));
    for (float lane : lanes) sum += static_cast<double>(lane);
    return sum;
  };
  return importance.empty() ? sum_of(squared) : sum_of([&](size_t i) { return squared(i) * importance[i]; });
}

// The least number of 4 significant bits that is not below v.
float UpTo4Bits(float v) {
  int exponent;
  const double mantissa = std::frexp(static_cast<double>(v), &exponent);  // in [0.5, 1)
  return static_cast<float>(std::ldexp(std::ceil(mantissa * 16) / 16, exponent));
}

struct RowScales {
  double error = INFINITY;
  float scale = 0;
  std::vector<int> multiples;
};

// With the multiple of each block that errs least: the one that reaches all of it, or the one below, which clips a little.
RowScales WithScale(std::span<const float> row, std::span<const float> importance, std::span<const float> wanted, size_t block, float scale) {
  RowScales r{0, scale, {}};
  for (size_t b = 0; b < wanted.size(); ++b) {
    const std::span<const float> w = row.subspan(b * block, block), counts = importance.empty() ? importance : importance.subspan(b * block, block);
    const int reaching = std::min(std::max(static_cast<int>(std::ceil(wanted[b] / scale * (1 - 1e-6f))), 1), kMostMultiple);
    double error = ErrorOf(w, scale * static_cast<float>(reaching), counts);
    int best = reaching;
    if (reaching > 1)
      if (const double below = ErrorOf(w, scale * static_cast<float>(reaching - 1), counts); below < error) {
        error = below;
        best = reaching - 1;
      }
    r.error += error;
    r.multiples.push_back(best);
  }
  return r;
}

}  // namespace

std::vector<float> ExpandedScales(std::span<const float> row, std::span<const float> importance, int block) {
  const size_t size = static_cast<size_t>(block);
  std::vector<float> wanted(row.size() / size);
  float most = 0;
  for (size_t b = 0; b < wanted.size(); ++b) {
    wanted[b] = BlockScale(row.subspan(b * size, size));
    most = std::max(most, wanted[b]);
  }
  // 4 bits times 4 bits are 8: exact in bf16. Rows of zeros have any scale.
  float scale = most == 0 ? 1.0f : std::max(UpTo4Bits(most / kMostMultiple), 16 * FLT_MIN);
  RowScales best = WithScale(row, importance, wanted, size, scale);
  // Smaller ones clip the largest block and are finer for all others.
  for (int i = 0; i < 3 && most > 0 && scale > 32 * FLT_MIN; ++i) {
    scale = UpTo4Bits(scale * (1 - 1.0f / 10));
    if (RowScales r = WithScale(row, importance, wanted, size, scale); r.error < best.error) best = std::move(r);
  }
  std::vector<float> scales;
  for (int multiple : best.multiples) scales.push_back(best.scale * static_cast<float>(multiple));
  return scales;
}

Result<PackedBlocks> ExpandedBlocks(const Constant& matrix, int block) {
  FloatRows rows(matrix);
  const size_t size = static_cast<size_t>(block);
  PackedBlocks packed;
  packed.data.reserve(static_cast<size_t>(rows.rows() * rows.width() / 2));
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const std::span<const float> row = rows.row(r);
    if (!AllFinite(row)) return NotFinite(matrix);
    const std::vector<float> scales = ExpandedScales(row, {}, block);
    for (size_t b = 0; b < scales.size(); ++b) {
      const float s = scales[b];
      packed.scales.push_back(FloatToBFloat16(s));
      for (size_t i = b * size; i < (b + 1) * size; i += 2)
        packed.data.push_back(static_cast<uint8_t>((QuantizeElement(row[i], s, 0, kFourBits) + 8) | ((QuantizeElement(row[i + 1], s, 0, kFourBits) + 8) << 4)));
    }
  }
  return packed;
}

Result<std::vector<float>> FourBitScales(const Constant& weight, int axis) {
  const Shape& shape = weight.type.shape;
  const size_t channels = static_cast<size_t>(shape[static_cast<size_t>(axis)].value());
  size_t inner = 1;
  for (size_t d = static_cast<size_t>(axis) + 1; d < shape.rank(); ++d) inner *= static_cast<size_t>(shape[d].value());
  std::vector<std::vector<float>> of(channels);
  FloatRows rows(weight);
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const std::span<const float> row = rows.row(r);
    for (size_t i = 0; i < row.size(); ++i) of[axis == 0 ? static_cast<size_t>(r) : i / inner % channels].push_back(row[i]);
  }
  std::vector<float> scales;
  for (const std::vector<float>& w : of) {
    if (!AllFinite(w)) return NotFinite(weight);
    float most = 0;
    for (float v : w) most = std::max(most, std::abs(v));
    float best = most / 7;
    if (most > 128 * FLT_MIN) {
      double least = ErrorOf(w, best);
      for (int i = 1; i <= 12; ++i) {
        const float scale = most / 7 * (1 - static_cast<float>(i) / 24);
        if (const double e = ErrorOf(w, scale); e < least) {
          least = e;
          best = scale;
        }
      }
    }
    scales.push_back(best);
  }
  return scales;
}

}  // namespace dovetail
