// Faster kernels for depthwise convolutions of int8 than XNNPACK's own, over its packed weights.
//
// XNNPACK's for AVX512 widen inputs and weights to 32 bits and multiply them tap by tap. These put the taps of a column of the kernel side by side and
// take four by one instruction (AVX512-VNNI); a column that the next output needs too is put together once (bench/depthwise_kernels.cc measures them).
#pragma once

#include <cstddef>
#include <cstdint>

namespace dovetail {

// As XNNPACK calls it, for `width` outputs of `channels` int8, `output_increment` bytes between them. `input` has a pointer for each tap, column by
// column, for the first output, `input_stride` bytes further those for the next; `input_offset` is added to all that are not `zero`. `params` has the
// zero point and the range of results, as int16.
using DepthwiseKernel = void(size_t channels, size_t width, const int8_t** input, const void* weights, int8_t* output, intptr_t input_stride,
                             size_t output_increment, size_t input_offset, const int8_t* zero, const void* params);

// Puts them in the place of XNNPACK's in its table of kernels; of those that give other results on a sample than XNNPACK's (a
// library of another version), none. Before the first operator is created.
void UseDepthwiseKernels();

// The pairs there are; for tests and benchmarks.
struct DepthwiseKernelPair {
  const char* name;
  DepthwiseKernel *theirs, *ours;
  size_t taps, column;   // how many a kernel has, and how many of them are a column of a square one
};
// Null where there are none for this library or processor.
const DepthwiseKernelPair* DepthwiseKernels(size_t* count);
// Where XNNPACK's table has the kernel; null where it has not.
DepthwiseKernel** FindDepthwiseKernel(DepthwiseKernel* kernel);

// What a convolution's row is for the kernel: `stride` pointers from an output's first to the next one's.
struct DepthwiseSample {
  size_t channels, width, stride;
  uint32_t seed = 1;
};
// Whether both give the same bits on it.
bool SameResults(const DepthwiseKernelPair& pair, const DepthwiseSample& sample);
// On samples of several sizes.
bool SameResults(const DepthwiseKernelPair& pair);

}  // namespace dovetail
