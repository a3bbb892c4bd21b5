#include "llm/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dovetail {

Result<Sampler> Sampler::Create(const SamplerOptions& o) {
  if (!(o.temperature >= 0) || std::isinf(o.temperature)) return InvalidArgument("the temperature must be 0 (greedy) or more");
  if (o.top_k < 0) return InvalidArgument("top_k is ", o.top_k, ": it must be 0 (all tokens) or more");
  if (!(o.top_p > 0 && o.top_p <= 1)) return InvalidArgument("top_p must be more than 0 and at most 1");
  return Sampler(o);
}

Result<int64_t> Sampler::Pick(std::span<const float> logits) {
  int64_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i]) && (best < 0 || logits[i] > logits[static_cast<size_t>(best)])) best = static_cast<int64_t>(i);
  }
  if (best < 0) return InvalidArgument("none of the ", logits.size(), " logits is a number: the model's output is broken");
  const float top = logits[static_cast<size_t>(best)];
  if (options_.temperature == 0 || std::isinf(top)) return best;

  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isnan(logits[i])) candidates_.emplace_back(logits[i], static_cast<int64_t>(i));
  }
  const auto before = [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; };
  if (options_.top_k > 0 && static_cast<size_t>(options_.top_k) < candidates_.size()) {
    const auto end = candidates_.begin() + static_cast<ptrdiff_t>(options_.top_k);
    std::partial_sort(candidates_.begin(), end, candidates_.end(), before);
    candidates_.erase(end, candidates_.end());
  } else if (options_.top_p < 1) {
    std::sort(candidates_.begin(), candidates_.end(), before);
  }
  const auto weight = [&](float logit) { return std::exp((static_cast<double>(logit) - top) / options_.temperature); };
  double total = 0;
  for (const auto& c : candidates_) total += weight(c.first);
  if (options_.top_p < 1) {
    double kept = 0;
    size_t count = 0;
    while (count < candidates_.size() && kept < options_.top_p * total) kept += weight(candidates_[count++].first);
    candidates_.resize(std::max<size_t>(count, 1));
    total = kept;
  }
  // 53 random bits as a number in [0, 1): <random>'s distributions differ between standard libraries.
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 * total;
  for (const auto& c : candidates_) {
    left -= weight(c.first);
    if (left < 0) return c.second;
  }
  return candidates_.back().second;  // rounding left a little over
}

}  // namespace dovetail
