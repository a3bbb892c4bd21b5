#include "quant/observer.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numeric>

#include "ops/quantization.h"

namespace dovetail {
namespace {

constexpr int kHalf = Observer::kBins / 2;
constexpr int kHalfLog2 = 11;
static_assert(1 << kHalfLog2 == kHalf);

// The narrowest bins that hold `most`.
int ExponentFor(float most) { return std::ilogb(most) + 1 - kHalfLog2; }

int BinOf(double scaled) {
  const int i = static_cast<int>(scaled);
  return i - (scaled < i) + kHalf;
}

// Sums over the bins below an index, of the elements' number, value and square, each at its bin's centre.
struct Moments {
  double n = 0, sum = 0, squares = 0;
  Moments operator-(const Moments& o) const { return {n - o.n, sum - o.sum, squares - o.squares}; }
  // Of the squared distances to `v`.
  double Around(double v) const { return std::max(0.0, squares - 2 * v * sum + v * v * n); }
};

class ClippingError {
 public:
  ClippingError(std::span<const uint64_t> bins, double width, double clipping, int steps)
      : width_(width), clipping_(clipping), steps_(steps), below_(bins.size() + 1) {
    for (size_t i = 0; i < bins.size(); ++i) {
      const double n = static_cast<double>(bins[i]), c = (static_cast<double>(i) + 0.5 - kHalf) * width;
      below_[i + 1] = {below_[i].n + n, below_[i].sum + n * c, below_[i].squares + n * c * c};
    }
  }
  // Rounding to steps is an error that is uniform over a step; 0 has none.
  double Of(double low, double high) const {
    const size_t first = Index(low), last = Index(high) + 1;
    const double step = (high - low) / steps_;
    const double clipped = below_[first].Around(low) + (below_.back() - below_[last]).Around(high);
    return clipping_ * clipped + (below_[last] - below_[first]).n * step * step / 12;
  }

 private:
  size_t Index(double v) const { return static_cast<size_t>(std::clamp(BinOf(v / width_), 0, Observer::kBins - 1)); }
  double width_, clipping_, steps_;
  std::vector<Moments> below_;
};

}  // namespace

void Observer::Add(std::span<const float> values, size_t call) {
  float low = INFINITY, high = -INFINITY;
  uint64_t nans = 0, infinities = 0;
  for (float v : values) {
    if (!std::isfinite(v)) {
      (std::isnan(v) ? nans : infinities) += 1;
      continue;
    }
    low = std::min(low, v);
    high = std::max(high, v);
  }
  nans_ += nans;
  infinities_ += infinities;
  if (nans + infinities) first_bad_call_ = std::min(first_bad_call_, call);
  if (!(low <= high)) return;
  min_ = finite_ ? std::min(min_, low) : low;
  max_ = finite_ ? std::max(max_, high) : high;
  finite_ += values.size() - nans - infinities;
  ++calls_;
  sum_min_ += static_cast<double>(low);
  sum_max_ += static_cast<double>(high);
  const float most = std::max(-low, high);
  if (most == 0) return;
  Widen(ExponentFor(most));
  const double inverse = std::ldexp(1.0, -exponent_);
  double squares = 0;
  for (float v : values) {
    if (!std::isfinite(v) || v == 0) continue;
    ++bins_[static_cast<size_t>(BinOf(static_cast<double>(v) * inverse))];
    squares += static_cast<double>(v) * static_cast<double>(v);
  }
  Power& power = power_[call];
  power.squares += squares;
  power.elements += values.size() - nans - infinities;
}

void Observer::Merge(const Observer& other) {
  if (other.finite_) {
    min_ = finite_ ? std::min(min_, other.min_) : other.min_;
    max_ = finite_ ? std::max(max_, other.max_) : other.max_;
  }
  finite_ += other.finite_;
  nans_ += other.nans_;
  infinities_ += other.infinities_;
  calls_ += other.calls_;
  first_bad_call_ = std::min(first_bad_call_, other.first_bad_call_);
  sum_min_ += other.sum_min_;
  sum_max_ += other.sum_max_;
  for (const auto& [call, power] : other.power_) {
    power_[call].squares += power.squares;
    power_[call].elements += power.elements;
  }
  if (other.bins_.empty()) return;
  Widen(other.exponent_);
  const int shift = std::min(exponent_ - other.exponent_, kHalfLog2 + 1);
  for (int i = 0; i < kBins; ++i) bins_[static_cast<size_t>(((i - kHalf) >> shift) + kHalf)] += other.bins_[static_cast<size_t>(i)];
}

void Observer::Widen(int exponent) {
  if (bins_.empty()) {
    bins_.resize(kBins);
    exponent_ = exponent;
    return;
  }
  if (exponent <= exponent_) return;
  const int shift = std::min(exponent - exponent_, kHalfLog2 + 1);
  std::vector<uint64_t> wider(kBins);
  for (int i = 0; i < kBins; ++i) wider[static_cast<size_t>(((i - kHalf) >> shift) + kHalf)] += bins_[static_cast<size_t>(i)];
  bins_ = std::move(wider);
  exponent_ = exponent;
}

ValueRange Observer::FullRange() const { return {std::min(min_, 0.0f), std::max(max_, 0.0f)}; }

ValueRange Observer::MeanRange() const {
  if (!calls_) return {};
  const double n = static_cast<double>(calls_);
  return {static_cast<float>(std::min(sum_min_ / n, 0.0)), static_cast<float>(std::max(sum_max_ / n, 0.0))};
}

ValueRange Observer::PercentileRange(double tail) const {
  const ValueRange full = FullRange();
  if (bins_.empty()) return full;
  const double allowed = tail * static_cast<double>(finite_), width = std::ldexp(1.0, exponent_);
  ValueRange r = full;
  double left_out = 0;
  for (int i = 0; i < kHalf; ++i) {
    left_out += static_cast<double>(bins_[static_cast<size_t>(i)]);
    if (left_out > allowed) break;
    r.low = static_cast<float>(std::max((i + 1 - kHalf) * width, static_cast<double>(full.low)));
  }
  left_out = 0;
  for (int i = kBins - 1; i >= kHalf; --i) {
    left_out += static_cast<double>(bins_[static_cast<size_t>(i)]);
    if (left_out > allowed) break;
    r.high = static_cast<float>(std::min((i - kHalf) * width, static_cast<double>(full.high)));
  }
  return r;
}

ValueRange Observer::MseRange(double clipping, int steps) const {
  const ValueRange full = FullRange();
  if (bins_.empty()) return full;
  const ClippingError error(bins_, std::ldexp(1.0, exponent_), clipping, steps);
  const double low = static_cast<double>(full.low), high = static_cast<double>(full.high);
  // Parts of the full range on each side: first on a coarse grid, then on a fine one around the best. Of equal ones the widest.
  double best_low = 1, best_high = 1, best = error.Of(low, high);
  auto search = [&](double from_low, double from_high, double step, int steps) {
    for (int i = 0; i <= steps; ++i)
      for (int j = 0; j <= steps; ++j) {
        const double a = std::clamp(from_low - i * step, 0.0, 1.0), b = std::clamp(from_high - j * step, 0.0, 1.0);
        if (low * a == high * b) continue;
        const double e = error.Of(low * a, high * b);
        if (e < best) {
          best = e;
          best_low = a;
          best_high = b;
        }
      }
  };
  search(1, 1, 1.0 / 64, 64);
  search(best_low + 1.0 / 64, best_high + 1.0 / 64, 1.0 / 512, 16);
  return {static_cast<float>(low * best_low), static_cast<float>(high * best_high)};
}

double Observer::QuietCalls(double step) const {
  std::vector<double> powers;
  for (const auto& [call, power] : power_) powers.push_back(power.squares / static_cast<double>(power.elements));
  if (powers.empty()) return INFINITY;
  const auto tenth = powers.begin() + static_cast<std::ptrdiff_t>(powers.size() / 10);
  std::nth_element(powers.begin(), tenth, powers.end());
  return 10 * std::log10(*tenth / (step * step / 12));
}

double Observer::NearZero() const {
  if (bins_.empty()) return 0;
  const uint64_t all = std::accumulate(bins_.begin(), bins_.end(), uint64_t{0});
  return static_cast<double>(bins_[kBins / 2 - 1] + bins_[kBins / 2]) / static_cast<double>(all);
}

double Observer::MostElements(double step) const {
  if (bins_.empty()) return INFINITY;
  const double width = std::ldexp(1.0, exponent_);
  double left_out = static_cast<double>(finite_) / 20, squares = 0;
  for (int far = kHalf - 1; far >= 0; --far) {
    // On either side of 0.
    double n = static_cast<double>(bins_[static_cast<size_t>(kHalf + far)] + bins_[static_cast<size_t>(kHalf - 1 - far)]);
    const double skipped = std::min(n, left_out), centre = (far + 0.5) * width;
    left_out -= skipped;
    n -= skipped;
    squares += n * centre * centre;
  }
  if (squares == 0) return INFINITY;
  return 10 * std::log10(squares / (0.95 * static_cast<double>(finite_)) / (step * step / 12));
}

QuantParams ParamsOf(ValueRange range, DType dtype) {
  const IntegerRange integers = RangeOf(dtype);
  const double least = integers.min, most = integers.max;
  const double low = std::min(static_cast<double>(range.low), 0.0), high = std::max(static_cast<double>(range.high), 0.0);
  if (low == high) return QuantParams::PerTensor(1, 0);
  const float scale = std::max(static_cast<float>((high - low) / (most - least)), FLT_MIN);
  const double zero_point = std::nearbyint(least - low / static_cast<double>(scale));
  return QuantParams::PerTensor(scale, static_cast<int32_t>(std::clamp(zero_point, least, most)));
}

}  // namespace dovetail
