#include "ops/quantization.h"

namespace dovetail {

RowQuantization AsymmetricRow(float min, float max) {
  const float low = std::min(0.0f, min), high = std::max(0.0f, max);
  const float steps = low == high ? 1.0f : 255.0f / (high - low);
  const float low_steps = low * steps, high_steps = high * steps;
  float zero_point = (-128 + low_steps) + (127 + high_steps) > 0 ? -128 - low_steps : 127 - high_steps;
  // NaN of ranges that are infinite, or so small that their inverse is.
  zero_point = std::isnan(zero_point) ? 0 : std::clamp(zero_point, -128.0f, 127.0f);
  return {1 / steps, static_cast<int32_t>(std::nearbyint(zero_point))};
}

}  // namespace dovetail
