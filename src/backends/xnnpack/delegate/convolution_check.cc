#include "backends/xnnpack/delegate/convolution_check.h"

#include <xnnpack.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/xnnpack/delegate/operator_ptr.h"

namespace dovetail {
namespace {

// 17 results: a tile of 16, and one.
constexpr size_t kChannels = 132, kTaps = 2, kWidth = 18, kResults = kWidth - kTaps + 1;
constexpr int kZeroPoint = 1;

// So few and small that every result is exact and within int8.
int Weight(size_t i) { return i % 13 == 0 ? (i % 2 ? 1 : -1) : 0; }
int Activation(size_t i) { return static_cast<int>(i * 7 % 5) - 2; }

Status Check() {
  std::vector<int8_t> weights(kTaps * kChannels), in(kWidth * kChannels + XNN_EXTRA_BYTES), out(kResults + XNN_EXTRA_BYTES);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<int8_t>(Weight(i));
  for (size_t i = 0; i < kWidth * kChannels; ++i) in[i] = static_cast<int8_t>(Activation(i));
  const float scale = 1;
  xnn_operator_t made = nullptr;
  xnn_status s = xnn_create_convolution2d_nhwc_qs8_qc8w(0, 0, 0, 0, 1, kTaps, 1, 1, 1, 1, 1, kChannels, 1, kChannels, 1, kZeroPoint, 1, &scale, weights.data(),
                                                        nullptr, 0, 1, -128, 127, 0, nullptr, nullptr, &made);
  const OperatorPtr op(made);
  size_t workspace = 0, alignment = 0, height = 0, width = 0;
  if (s == xnn_status_success) s = xnn_reshape_convolution2d_nhwc_qs8_qc8w(made, 1, 1, kWidth, &workspace, &alignment, &height, &width, nullptr);
  std::vector<std::byte> memory(workspace + alignment);
  void* aligned = memory.data();
  size_t space = memory.size();
  if (workspace > 0) aligned = std::align(alignment, workspace, aligned, space);
  if (s == xnn_status_success) s = xnn_setup_convolution2d_nhwc_qs8_qc8w(made, aligned, in.data(), out.data());
  if (s == xnn_status_success) s = xnn_run_operator(made, nullptr);
  if (s != xnn_status_success) return Unsupported("XNNPACK has no int8 convolution for this processor");

  for (size_t r = 0; r < kResults; ++r) {
    int expected = 0;
    for (size_t i = 0; i < kTaps * kChannels; ++i) expected += (Activation(r * kChannels + i) - kZeroPoint) * Weight(i);
    if (out[r] != expected)
      return Unsupported("this build of XNNPACK computes int8 convolutions wrongly on this processor; build XNNPACK with -DXNNPACK_ENABLE_AVX512AMX=OFF, or "
                         "with tools/build_xnnpack.sh");
  }
  return OkStatus();
}

}  // namespace

Status CheckConvolutions() {
  static const Status status = Check();
  return Status(status.code(), std::string(status.message()));
}

}  // namespace dovetail
