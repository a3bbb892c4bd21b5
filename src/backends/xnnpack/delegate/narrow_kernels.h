// Faster kernels than XNNPACK's for int8 layers that are too small for AMX, over its packed weights.
//
// XNNPACK's AMX kernels compute and convert tiles of 64 columns, whether a layer has them or not, and where the inner size is small that costs more than
// the products. These compute the columns that are there by AVX512-VNNI, 16 at a time, and leave the others to XNNPACK's.
#pragma once

namespace dovetail {

// Puts them in the place of XNNPACK's in its table of kernels where XNNPACK chose those with AMX and they give the same bits on samples. Before the first
// operator is created. Returns how many were put there.
int UseNarrowKernels();
// Whether they give the same bits; true where XNNPACK does not use AMX.
bool NarrowKernelsAgree();

}  // namespace dovetail
