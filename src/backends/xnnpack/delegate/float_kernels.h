// A faster kernel for matrix products of floats than XNNPACK's own, over its packed weights.
//
// XNNPACK's for AVX512 take 7 rows, so that weights larger than the cache come from behind it once for every 7 rows, and the multipliers wait. This one
// takes up to 28 in two halves: the second finds the columns' weights in the cache, and their next ones are asked for ahead (bench/float_kernels.cc).
#pragma once

#include <cstddef>
#include <cstdint>

namespace dovetail {

// As XNNPACK calls it: `rows` by `columns` floats at `c` from rows of `inner` bytes of floats at `a` and weights at `w`: for each 32 columns 32 biases,
// then 32 floats for each inner index. `c_column_stride` bytes lie between the columns 0 and 32 of a row. `params` has the range of results.
using FloatKernel = void(size_t rows, size_t columns, size_t inner, const float* a, size_t a_stride, const float* w, float* c, size_t c_row_stride,
                         size_t c_column_stride, const void* params);

// Adds it to XNNPACK's table of kernels; not where it gives other results on a sample than XNNPACK's (a library of another version). Before the first
// operator is created.
void UseFloatKernels();

// For tests and benchmarks: both kernels and the most rows that they take.
struct FloatKernelPair {
  FloatKernel *theirs, *ours;
  size_t their_rows, our_rows;
};
// Null where there is none for this library or processor.
const FloatKernelPair* FloatKernels();
// Where XNNPACK's table has the kernel; null where it has not.
FloatKernel** FindFloatKernel(FloatKernel* kernel);

struct FloatSample {
  size_t rows, columns, inner;
  float min, max;
  uint32_t seed = 1;
};
// Whether both give the same bits on it.
bool SameResults(const FloatKernelPair& pair, const FloatSample& sample);
// On samples of several sizes.
bool SameResults(const FloatKernelPair& pair);

}  // namespace dovetail
