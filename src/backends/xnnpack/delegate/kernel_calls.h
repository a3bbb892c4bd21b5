// What XNNPACK passes to its kernels, whose headers it does not install, and the processor that ours are for.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dovetail {

// Of results.
struct FloatRange {
  float min, max;
};
struct BlockRange {
  float min, max;
  size_t block;  // inner size of a block of 4-bit weights
};
struct ByteRange {
  int16_t zero_point, min, max;
};

struct RowQuantization {
  int32_t zero_point;
  float scale;
};

#ifdef __x86_64__
#define DT_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))

inline bool HasVnni() {
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

}  // namespace dovetail
