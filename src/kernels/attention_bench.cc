// Attention's inner loops by instruction set, on one thread: GFLOP/s of the products of visible pairs of query and key (2 (width + value_width)
// each) and GB/s of keys and values, read once per call. Seconds are those of the thread, the least of several rounds.
//   attention_bench [WIDTH [QUERY HEADS PER KEY/VALUE HEAD]]     (64 and 4 unless told)
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>
#include <vector>

#include "kernels/vector_kernels.h"

namespace dovetail {
namespace {

double ThreadSeconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

template <class Body>
double LeastSeconds(const Body& body) {
  double least = 1e9;
  int64_t times = 1;
  for (int round = 0; round < 12;) {
    const double start = ThreadSeconds();
    for (int64_t i = 0; i < times; ++i) body();
    const double seconds = ThreadSeconds() - start;
    if (seconds < 0.004) {
      times *= 2;
      continue;
    }
    least = std::min(least, seconds / static_cast<double>(times));
    ++round;
  }
  return least;
}

// One key/value head. Decode: each query head has one row, which sees all keys. Prefill: as many rows as keys, row r sees r + 1. Encode: all rows see all keys.
enum Work { kDecode, kPrefill, kEncode };
constexpr const char* kWorks[] = {"decode", "prefill", "encode"};
void Measure(const VectorKernels& vectors, bool int8, Work work, int64_t heads, int64_t width, int64_t keys) {
  constexpr int64_t kMost = AttentionBlock::kMaxRows;
  const int64_t rows = work == kDecode ? heads : heads * keys;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto floats = [&](int64_t n) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& value : x) value = normal(random);
    return x;
  };
  const auto bytes = [&](int64_t n) {
    std::vector<int8_t> x(static_cast<size_t>(n));
    for (int8_t& value : x) value = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
    return x;
  };
  const std::vector<float> query = floats(rows * width), key = floats(keys * width), value = floats(keys * width);
  const std::vector<int8_t> key8 = bytes(keys * width), value8 = bytes(keys * width);
  const std::vector<float> scales(static_cast<size_t>(keys), 0.02f);
  std::vector<float> results(static_cast<size_t>(rows * width)), most(kMost), sum(kMost);
  std::vector<int64_t> visible(static_cast<size_t>(rows)), mask_at(kMost, 0);
  double pairs = 0;
  for (int64_t r = 0; r < rows; ++r) {
    visible[static_cast<size_t>(r)] = work == kPrefill ? r % keys + 1 : keys;
    pairs += static_cast<double>(visible[static_cast<size_t>(r)]);
  }

  AttentionBlock b{};
  b.width = b.value_width = b.key_stride = b.value_stride = width;
  b.keys = int8 ? static_cast<const void*>(key8.data()) : key.data();
  b.values = int8 ? static_cast<const void*>(value8.data()) : value.data();
  if (int8) b.key_scale = b.value_scale = scales.data();
  b.end = keys;
  b.scale = 0.125f;
  b.mask_at = mask_at.data();
  b.most = most.data(), b.sum = sum.data();
  const double seconds = LeastSeconds([&] {
    for (int64_t r = 0; r < rows; r += kMost) {
      b.rows = std::min(kMost, rows - r);
      const float* queries[kMost];
      float* to[kMost];
      for (int64_t i = 0; i < b.rows; ++i) queries[i] = query.data() + (r + i) * width, to[i] = results.data() + (r + i) * width;
      b.query = queries;
      b.visible = visible.data() + r;
      b.results = to;
      (int8 ? vectors.attend_int8 : vectors.attend)(b);
    }
  });
  const double memory = static_cast<double>(keys * width) * 2 * (int8 ? 1 : 4) + (int8 ? static_cast<double>(keys) * 8 : 0);
  std::printf("%-9s %-4s %-7s %5" PRId64 " keys %9.1f us %7.1f GFLOP/s %6.1f GB/s\n", vectors.name, int8 ? "int8" : "f32",
              kWorks[work], keys, seconds * 1e6, pairs * static_cast<double>(width) * 4 / seconds * 1e-9, memory / seconds * 1e-9);
}

}  // namespace
}  // namespace dovetail

int main(int argc, char** argv) {
  const int64_t width = argc > 1 ? std::atoll(argv[1]) : 64, heads = argc > 2 ? std::atoll(argv[2]) : 4;
  if (width < 1 || heads < 1 || heads > dovetail::AttentionBlock::kMaxRows) {
    std::fprintf(stderr, "usage: attention_bench [WIDTH [HEADS]], at most %" PRId64 " heads\n", dovetail::AttentionBlock::kMaxRows);
    return 2;
  }
  for (const dovetail::VectorKernels* vectors : dovetail::VectorVariants())
    for (bool int8 : {false, true}) {
      for (int64_t keys : {64, 256, 1024, 4096}) dovetail::Measure(*vectors, int8, dovetail::kDecode, heads, width, keys);
      for (dovetail::Work work : {dovetail::kPrefill, dovetail::kEncode})
        for (int64_t keys : {64, 128, 512, 1024}) dovetail::Measure(*vectors, int8, work, heads, width, keys);
    }
}
