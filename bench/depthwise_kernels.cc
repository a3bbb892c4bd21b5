// XNNPACK's kernels for depthwise convolutions of int8 beside ours, over the layers of MobileNetV2 (3x3) and of the same sizes with 5x5.
//
//   cmake --build build/release --target depthwise_kernels_bench && build/release/bin/depthwise_kernels_bench
#include "backends/xnnpack/delegate/depthwise_kernels.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "backends/xnnpack/delegate/allocator.h"
#include "kernel_timing.h"

int main() {
  if (!dovetail::InitializeXnnpack().ok()) return 1;
  size_t count = 0;
  const dovetail::DepthwiseKernelPair* pairs = dovetail::DepthwiseKernels(&count);
  if (count == 0) std::puts("no depthwise kernels for this processor, or XNNPACK's cannot be linked");
  const struct {
    size_t channels, size, stride, times;
  } layers[] = {{32, 112, 1, 1}, {96, 112, 2, 1}, {144, 56, 1, 1},  {144, 56, 2, 1}, {192, 28, 1, 2},
                {192, 28, 2, 1}, {384, 14, 1, 4}, {576, 14, 1, 2}, {576, 14, 2, 1}, {960, 7, 1, 3}};
  for (size_t i = 0; i < count; ++i) {
    const dovetail::DepthwiseKernelPair& pair = pairs[i];
    double total[2] = {};
    for (const auto& layer : layers) {
      const size_t width = layer.size / layer.stride, side = layer.size + pair.column - 1, row = pair.column * side;
      std::vector<int8_t> image(side * side * layer.channels + 64, 3), out(width * width * layer.channels);
      void* weights = nullptr;
      const size_t bytes = (layer.channels + 31) / 32 * 32 * (pair.taps + 8);
      if (posix_memalign(&weights, 64, bytes) != 0) return 1;
      std::memset(weights, 1, bytes);
      // For each row of outputs, column by column the pointers of its rows of inputs.
      std::vector<const int8_t*> pointers(width * row);
      for (size_t y = 0; y < width; ++y)
        for (size_t x = 0; x < side; ++x)
          for (size_t k = 0; k < pair.column; ++k)
            pointers[y * row + x * pair.column + k] = image.data() + ((y * layer.stride + k) * side + x) * layer.channels;
      const int16_t params[3] = {1, -128, 127};
      const int8_t zero = 0;
      const auto times = TimeKernels([&](bool ours) {
        for (size_t y = 0; y < width; ++y)
          (ours ? pair.ours : pair.theirs)(layer.channels, width, pointers.data() + y * row, weights, out.data() + y * width * layer.channels,
                                           static_cast<intptr_t>(layer.stride * pair.column * sizeof(void*)), 0, 0, &zero, params);
      });
      std::free(weights);
      for (int which = 0; which < 2; ++which) total[which] += times[which].median * static_cast<double>(layer.times);
      std::printf("%s %4zu channels %3zux%-3zu stride %zu: xnnpack %6.1f us, ours %6.1f us\n", pair.name, layer.channels, layer.size, layer.size, layer.stride,
                  times[0].median, times[1].median);
    }
    std::printf("%s all: xnnpack %.1f us, ours %.1f us\n", pair.name, total[0], total[1]);
  }
}
