// The inner loops that are written once over a vector's width (lanes.h) and compiled for several instruction sets, each in a file of its
// own: vector_portable.cc, vector_avx2.cc, vector_avx512.cc. vector_kernels.inc lists them.
//
// All variants give the same integers; floats differ by rounding. Each is deterministic.
#pragma once

#include <cstdint>
#include <span>

namespace dovetail {

// Some query rows that attend keys [begin, end) of one key/value head. Each row's keys up to visible[row] count, the others are not read
// unless a row next to it sees them.
struct AttentionBlock {
  static constexpr int64_t kMaxRows = 64;

  int64_t rows;  // <= kMaxRows
  int64_t width, value_width;
  const float* const* query;  // [rows][width]
  const void *keys, *values;  // of `width` and `value_width` elements of the type that the function takes
  int64_t key_stride, value_stride;  // elements from one to the next
  const float *key_scale, *value_scale;  // per key; both or none
  int64_t begin, end;
  const int64_t* visible;  // [rows]
  float scale;  // of the products of query and key

  // The mask, if any, is uint8 (0: the key does not count) or float (added to the score), at mask_at[row] + key * mask_stride.
  const uint8_t* keep;
  const float* bias;
  const int64_t* mask_at;
  int64_t mask_stride;

  // What the rows gather, all three written: sums of values by weights e^(score - most), the largest score, and the sum of weights.
  float* const* results;  // [rows][value_width]
  float *most, *sum;
};

struct VectorKernels {
  const char* name;

  void (*attend)(const AttentionBlock& block);
  void (*attend_int8)(const AttentionBlock& block);
  // How many of the n numbers are left without the -inf at their end; n if n <= 0.
  int64_t (*length_above_none)(const float* x, int64_t n);
  // to += from * factor
  void (*add_scaled)(float* to, const float* from, float factor, int64_t n);
  // x *= factor. False if a result is infinite or NaN.
  bool (*scale_finite)(float* x, float factor, int64_t n);

  // One row of quantize_rows; returns the scale.
  float (*quantize_row)(int8_t* out, const float* in, int64_t n);
  void (*dequantize_row)(float* out, const int8_t* in, float scale, int64_t n);

  // Rows of n numbers, n > 0, as the operators of these names have them. `half` is that of a row's width.
  void (*rms_norm_row)(float* out, const float* in, const float* weight, float eps, int64_t n);
  void (*layer_norm_row)(float* out, const float* in, const float* weight, const float* bias, float eps, int64_t n);
  void (*softmax_row)(float* out, const float* in, int64_t n);
  void (*rotate)(float* out, const float* in, const float* cos, const float* sin, int64_t half);
  void (*silu_mul)(float* out, const float* gate, const float* up, int64_t n);
};

// Of the widest instruction set that this CPU has.
const VectorKernels& Vectors();
// All that this CPU can run; the last one is the widest.
std::span<const VectorKernels* const> VectorVariants();
// Makes Vectors() return `variant`, or the widest again if null: for tests and benchmarks of one after the other, while no kernel runs.
void UseVectors(const VectorKernels* variant);

}  // namespace dovetail
