// The kernel of every operator: an optimized one where there is one, else the operator's reference.
//
// A kernel takes the shapes, dtypes and attributes that its operator's inference accepts, and gives what the reference gives, up to
// rounding; what it has no fast path for it hands to the reference. Kernels have no state and may run at the same time. They work
// in parallel on KernelContext::pool, and their results, bit for bit, do not depend on the number of its threads.
#pragma once

#include "ops/op_def.h"

namespace dovetail {

// Never null for an operator with a reference; null for structural operators, which have none.
KernelFn FindKernel(OpId op);
// How many bytes of KernelContext::scratch the kernel of `op` needs; null when it needs none. The function reads only the shapes, dtypes
// and attributes in the context, no tensor's data (which may be null), and its answer grows with every dimension: memory for the upper
// bounds of a shape is enough for all smaller ones.
ScratchFn FindScratch(OpId op);

// Optimized kernels, one file each; kernels.inc lists them.
namespace kernels {

#define KERNEL(Name) Status Name(const KernelContext& c);
#define KERNEL_WITH_SCRATCH(Name) \
  Status Name(const KernelContext& c); \
  size_t Name##Scratch(const KernelContext& c);
#include "kernels/kernels.inc"
#undef KERNEL_WITH_SCRATCH
#undef KERNEL

}  // namespace kernels
}  // namespace dovetail
