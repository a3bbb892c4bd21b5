// Faster kernels for one row than XNNPACK's own, over its packed weights.
//
// A decoding step reads every weight once, so the kernel for one row should read as fast as memory gives. On processors with AVX512-VNNI, XNNPACK's
// prefetches a few cache lines ahead by instruction. On Zen 4 that takes the place of the hardware's own, longer reach: it reads at three quarters of
// the speed of a plain loop (bench/row_kernels.cc measures it). These have the plain loop, on Intel with a longer reach where that is faster.
// With AMX, XNNPACK's kernel for one row fills a sixteenth of a tile; ours has AVX512-VNNI over the same packed weights.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dovetail {

// As XNNPACK calls it: `rows` (always 1) by `columns` floats at c, of a row of `inner` int8 at `a` (readable up to a multiple of 8) and weights at
// `w`; `params` has the range of results, `quantization` the row's zero point and scale.
using RowKernel = void(size_t rows, size_t columns, size_t inner, const int8_t* a, size_t a_stride, const void* w, float* c, size_t c_row_stride,
                       size_t c_column_stride, const void* params, const void* quantization);

// Puts them in the place of XNNPACK's in its table of kernels; of those that give other results on a sample than XNNPACK's (a
// library of another version), none. Before the first operator is created.
void UseRowKernels();

// The pairs there are; for tests and benchmarks.
struct RowKernelPair {
  const char* name;
  RowKernel *theirs, *ours;
  const void* (*table)();   // what XNNPACK keeps its kernel in; its size is not known
  size_t nr, kr;            // columns that are packed together, and how many bytes of each follow one another
  size_t block;             // inner size of a block of 4-bit weights; 0: weights are int8
};
// Null where there are none for this library or processor.
const RowKernelPair* RowKernels(size_t* count);
// Whether both give the same bits on samples of several sizes.
bool SameResults(const RowKernelPair& pair);

}  // namespace dovetail
