#include "backends/xnnpack/delegate/block_weights_check.h"

#include <xnnpack.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/xnnpack/delegate/operator_ptr.h"
#include "core/dtype.h"

namespace dovetail {
namespace {

constexpr size_t kRows = 3, kInner = 64, kColumns = 20, kBlock = 32;
constexpr int kZeroPoint = 8;  // what a half that stands for 0 holds

// Small integers and powers of two: every sum is exact, in whatever order.
int Weight(size_t column, size_t i) { return static_cast<int>((column * 5 + i * 7) % 16) - kZeroPoint; }
int Activation(size_t row, size_t i) { return static_cast<int>((row * 11 + i * 13) % 61) - 30; }
float Scale(size_t column, size_t block) { return (column + block) % 2 ? 0.5f : 0.25f; }

Status Check() {
  std::vector<uint8_t> weights(kColumns * kInner / 2);
  std::vector<uint16_t> scales;  // bfloat16
  for (size_t n = 0; n < kColumns; ++n) {
    for (size_t i = 0; i < kInner; ++i)
      weights[(n * kInner + i) / 2] |= static_cast<uint8_t>((Weight(n, i) + kZeroPoint) << (i % 2 * 4));
    for (size_t b = 0; b < kInner / kBlock; ++b) scales.push_back(FloatToBFloat16(Scale(n, b)));
  }
  std::vector<int8_t> in(kRows * kInner + XNN_EXTRA_BYTES);
  for (size_t i = 0; i < kRows * kInner; ++i) in[i] = static_cast<int8_t>(Activation(i / kInner, i % kInner));
  // The padding repeats the last row, which XNNPACK may compute again for rows that a tile of its lacks.
  std::array<xnn_quantization_params, kRows + XNN_EXTRA_QUANTIZATION_PARAMS> rows;
  for (size_t r = 0; r < rows.size(); ++r) rows[r] = {.zero_point = static_cast<int32_t>(std::min(r, kRows - 1)) - 1, .scale = 1};
  std::vector<float> out(kRows * kColumns);

  xnn_operator_t made = nullptr;
  xnn_status s = xnn_create_fully_connected_nc_qd8_f32_qb4w(kInner, kColumns, kInner, kColumns, kBlock, kZeroPoint, scales.data(), weights.data(), nullptr,
                                                            -INFINITY, INFINITY, 0, nullptr, nullptr, &made);
  const OperatorPtr op(made);
  if (s == xnn_status_success) s = xnn_reshape_fully_connected_nc_qd8_f32_qb4w(made, kRows, nullptr);
  if (s == xnn_status_success) s = xnn_setup_fully_connected_nc_qd8_f32_qb4w(made, in.data(), out.data(), rows.data());
  if (s == xnn_status_success) s = xnn_run_operator(made, nullptr);
  if (s != xnn_status_success) return Unsupported("XNNPACK has no linear with blocks of 4-bit weights for this processor");

  for (size_t r = 0; r < kRows; ++r) {
    for (size_t n = 0; n < kColumns; ++n) {
      float expected = 0;
      for (size_t i = 0; i < kInner; ++i) expected += static_cast<float>((Activation(r, i) - rows[r].zero_point) * Weight(n, i)) * Scale(n, i / kBlock);
      if (out[r * kColumns + n] == expected) continue;
      return Unsupported("this build of XNNPACK multiplies wrongly by blocks of 4-bit weights on this processor; build XNNPACK with "
                         "-DXNNPACK_ENABLE_AVX512VNNIGFNI=OFF, as tools/build_xnnpack.sh does");
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckBlockWeights() {
  static const Status status = Check();
  return Status(status.code(), std::string(status.message()));
}

}  // namespace dovetail
