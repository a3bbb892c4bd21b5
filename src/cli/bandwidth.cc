#include "cli/bandwidth.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace dovetail::cli {
namespace {

constexpr size_t kBytes = size_t{256} << 20, kHugePage = size_t{2} << 20;
constexpr int kPasses = 7;

// Four sums, so that additions do not wait for each other.
using Lanes = uint64_t __attribute__((vector_size(64)));

uint64_t Sum(const std::byte* from, size_t bytes) {
  Lanes a{}, b{}, c{}, d{};
  const auto* p = reinterpret_cast<const Lanes*>(from);
  for (size_t i = 0; i + 4 <= bytes / sizeof(Lanes); i += 4) {
    a += p[i];
    b += p[i + 1];
    c += p[i + 2];
    d += p[i + 3];
  }
  a += b + c + d;
  uint64_t sum = 0;
  for (size_t i = 0; i < sizeof(Lanes) / sizeof(uint64_t); ++i) sum += a[i];
  return sum;
}

}  // namespace

double MeasureReadBandwidth(unsigned threads) {
  threads = std::max(1u, threads);
  void* mapped = mmap(nullptr, kBytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return 0;
  auto* start = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(mapped) + kHugePage - 1) / kHugePage * kHugePage);
#ifdef MADV_HUGEPAGE
  madvise(start, kBytes, MADV_HUGEPAGE);
#endif
  std::memset(start, 1, kBytes);
  const size_t share = kBytes / threads / 4096 * 4096;
  std::vector<uint64_t> sums(threads);
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<std::thread> others;
    for (unsigned t = 1; t < threads; ++t) others.emplace_back([&, t] { sums[t] = Sum(start + t * share, share); });
    sums[0] = Sum(start, share);
    for (std::thread& t : others) t.join();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    best = std::max(best, static_cast<double>(share) * threads / seconds);
  }
  // The sums are of known bytes: reading them keeps the loops.
  const uint64_t expected = 0x0101010101010101u * (share / sizeof(uint64_t));
  munmap(mapped, kBytes + kHugePage);
  return std::all_of(sums.begin(), sums.end(), [&](uint64_t s) { return s == expected; }) ? best : 0;
}

}  // namespace dovetail::cli
