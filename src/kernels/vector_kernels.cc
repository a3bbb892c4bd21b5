#include "kernels/vector_kernels.h"

#include <array>
#include <atomic>

namespace dovetail {

#define VARIANT(Name, runs) extern const VectorKernels kVectors##Name;
#include "kernels/vector_kernels.inc"
#undef VARIANT

namespace {

struct Variants {
  std::array<const VectorKernels*, 4> all{};
  size_t count = 0;

  Variants() {
#define VARIANT(Name, runs) \
  if (runs) all[count++] = &kVectors##Name;
#include "kernels/vector_kernels.inc"
#undef VARIANT
  }
};

const Variants& Found() {
  static const Variants variants;
  return variants;
}

std::atomic<const VectorKernels*> chosen{nullptr};

}  // namespace

std::span<const VectorKernels* const> VectorVariants() { return {Found().all.data(), Found().count}; }

const VectorKernels& Vectors() {
  const VectorKernels* variant = chosen.load(std::memory_order_relaxed);
  return variant ? *variant : *VectorVariants().back();
}

void UseVectors(const VectorKernels* variant) { chosen.store(variant, std::memory_order_relaxed); }

}  // namespace dovetail
