// Choosing the next token from logits.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/status.h"

namespace dovetail {

struct SamplerOptions {
  double temperature = 0;  // 0: greedy; else logits are divided by it
  int64_t top_k = 0;       // keeps the k most likely tokens; 0: all
  double top_p = 1;        // of those, keeps the fewest that have this much of the probability
  uint64_t seed = 0;
};

// The tokens depend on the options and the logits alone. One thread at a time.
class Sampler {
 public:
  // Fails on a negative temperature or top_k and on a top_p outside (0, 1].
  static Result<Sampler> Create(const SamplerOptions& options);
  // The index of the chosen logit. Equal logits: the lower index comes first. A NaN is never chosen; logits without a
  // number, such as those of a model that overflowed, are an error.
  Result<int64_t> Pick(std::span<const float> logits);

 private:
  explicit Sampler(const SamplerOptions& options) : options_(options), random_(options.seed) {}
  SamplerOptions options_;
  std::mt19937_64 random_;
  std::vector<std::pair<float, int64_t>> candidates_;
};

}  // namespace dovetail
