// XNNPACK's kernel for matrix products of floats beside ours.
//
//   cmake --build build/release --target float_kernels_bench && build/release/bin/float_kernels_bench
#include "backends/xnnpack/delegate/float_kernels.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

#include "kernel_timing.h"

int main() {
  const dovetail::FloatKernelPair* pair = dovetail::FloatKernels();
  if (!pair) return std::puts("no float kernel for this processor, or XNNPACK's cannot be linked"), 0;
  const struct {
    size_t rows, inner, columns;
  } products[] = {{128, 384, 384}, {128, 384, 1536}, {128, 1536, 384}, {128, 768, 768}, {128, 768, 2048}, {2, 384, 384},   {8, 384, 384},    {15, 384, 384},
                  {16, 384, 384},  {20, 384, 384},   {49, 384, 384},   {64, 384, 384},  {100, 384, 384},  {49, 160, 960},  {49, 960, 160},   {196, 64, 384},
                  {196, 384, 64},  {784, 192, 32},   {784, 32, 192},   {3136, 24, 144}, {3136, 144, 24},  {12544, 32, 16}, {12544, 16, 96}};
  for (const auto& p : products) {
    const size_t packed = (p.columns + 31) / 32 * 32 * (p.inner + 1), bytes = sizeof(float);
    void* memory = nullptr;
    if (posix_memalign(&memory, 64, packed * bytes) != 0) return 1;
    float* const w = static_cast<float*>(memory);
    std::fill(w, w + packed, 0.01f);
    std::vector<float> a(p.rows * p.inner, 0.5f), c(p.rows * p.columns);
    const float range[2] = {-std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity()};
    const auto times = TimeKernels([&](bool ours) {
      const size_t most = ours ? pair->our_rows : pair->their_rows;
      for (size_t r = 0; r < p.rows; r += most)
        (ours ? pair->ours : pair->theirs)(std::min(most, p.rows - r), p.columns, p.inner * bytes, a.data() + r * p.inner, p.inner * bytes, w,
                                           c.data() + r * p.columns, p.columns * bytes, 32 * bytes, range);
    });
    std::free(memory);
    const double kiloflops = 2e-3 * static_cast<double>(p.rows * p.inner * p.columns);
    std::printf("%5zu rows of %4zu by %4zu: xnnpack %7.1f us (%5.1f GFLOP/s), ours %7.1f us (%5.1f)\n", p.rows, p.inner, p.columns, times[0].median,
                kiloflops / times[0].median, times[1].median, kiloflops / times[1].median);
  }
}
