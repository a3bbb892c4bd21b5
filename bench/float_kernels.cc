// XNNPACK's kernel for matrix products of floats beside ours.
//
//   cmake --build build/release --target float_kernels_bench && build/release/bin/float_kernels_bench
#include "backends/xnnpack/delegate/float_kernels.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <vector>

int main() {
  using Clock = std::chrono::steady_clock;
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
    std::vector<double> us[2];
    for (int round = 0; round < 41; ++round) {
      for (int which = 0; which < 2; ++which) {
        const size_t most = which ? pair->our_rows : pair->their_rows;
        const auto start = Clock::now();
        for (size_t r = 0; r < p.rows; r += most)
          (which ? pair->ours : pair->theirs)(std::min(most, p.rows - r), p.columns, p.inner * bytes, a.data() + r * p.inner, p.inner * bytes, w,
                                              c.data() + r * p.columns, p.columns * bytes, 32 * bytes, range);
        us[which].push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count());
      }
    }
    std::free(memory);
    double gflops[2];
    for (int which = 0; which < 2; ++which) {
      std::sort(us[which].begin(), us[which].end());
      gflops[which] = 2e-3 * static_cast<double>(p.rows * p.inner * p.columns) / us[which][20];
    }
    std::printf("%5zu rows of %4zu by %4zu: xnnpack %7.1f us (%5.1f GFLOP/s), ours %7.1f us (%5.1f)\n", p.rows, p.inner, p.columns, us[0][20], gflops[0],
                us[1][20], gflops[1]);
  }
}
