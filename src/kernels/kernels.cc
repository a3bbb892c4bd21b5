#include "kernels/kernels.h"

namespace dovetail {

KernelFn FindKernel(OpId op) {
  switch (op) {
#define KERNEL(Name) \
  case OpId::k##Name: return kernels::Name;
#define KERNEL_WITH_SCRATCH(Name) KERNEL(Name)
#include "kernels/kernels.inc"
#undef KERNEL_WITH_SCRATCH
#undef KERNEL
    default: return GetOp(op).reference;
  }
}

ScratchFn FindScratch(OpId op) {
  switch (op) {
#define KERNEL(Name)
#define KERNEL_WITH_SCRATCH(Name) \
  case OpId::k##Name: return kernels::Name##Scratch;
#include "kernels/kernels.inc"
#undef KERNEL_WITH_SCRATCH
#undef KERNEL
    default: return nullptr;
  }
}

}  // namespace dovetail
