// XNNPACK's kernels for one row beside ours, over packed weights of the sizes of a Llama of 110M parameters, in private huge pages.
//
//   cmake --build build/release --target row_kernels_bench && build/release/bin/row_kernels_bench
#include "backends/xnnpack/delegate/row_kernels.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "backends/xnnpack/delegate/allocator.h"
#include "kernel_timing.h"

int main() {
  if (!dovetail::InitializeXnnpack().ok()) return 1;
  size_t count = 0;
  const dovetail::RowKernelPair* pairs = dovetail::RowKernels(&count);
  if (count == 0) std::puts("no row kernels for this processor, or XNNPACK's cannot be linked");
  for (size_t i = 0; i < count; ++i) {
    const dovetail::RowKernelPair& pair = pairs[i];
    struct Layer {
      size_t columns, inner, offset;
    };
    std::vector<Layer> layers;
    size_t bytes = 0;
    const auto add = [&](size_t columns, size_t inner) {
      layers.push_back({columns, inner, bytes});
      bytes += columns * (pair.block ? 4 + inner / pair.block * (pair.block / 2 + 2) + 4 : 4 + inner + 8);
    };
    for (int l = 0; l < 12; ++l)
      for (const auto& [columns, inner] : {std::pair<size_t, size_t>{768, 768}, {768, 768}, {768, 768}, {768, 768}, {2048, 768}, {2048, 768}, {768, 2048}})
        add(columns, inner);
    add(32000, 768);
    void* memory = nullptr;
    if (posix_memalign(&memory, size_t{2} << 20, bytes + 4096) != 0) return 1;
    madvise(memory, bytes, MADV_HUGEPAGE);
    std::memset(memory, 1, bytes);
    std::vector<int8_t> row(4096, 3);
    std::vector<float> out(32768);
    const struct {
      float min, max;
      size_t block;
    } params{-1e30f, 1e30f, pair.block};
    const struct {
      int32_t zero_point;
      float scale;
    } quantization{1, 0.1f};
    const auto times = TimeKernels([&](bool ours) {
      for (const Layer& l : layers)
        (ours ? pair.ours : pair.theirs)(1, l.columns, l.inner, row.data(), l.inner, static_cast<char*>(memory) + l.offset, out.data(), 4 * l.columns,
                                         4 * pair.nr, &params, &quantization);
    });
    for (int which = 0; which < 2; ++which)
      std::printf("%s %-7s min %.2f ms, median %.2f ms, %.1f GB/s\n", pair.name, which ? "ours" : "xnnpack", times[which].min / 1e3, times[which].median / 1e3,
                  static_cast<double>(bytes) / times[which].median / 1e3);
    std::free(memory);
  }
}
