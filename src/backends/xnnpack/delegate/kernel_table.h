// XNNPACK's tables of kernels, which its headers do not have.
#pragma once

#include <algorithm>
#include <cstddef>

namespace dovetail {

// Where `kernel` is in the first `words` pointers of `table`; null where it is not or there is no table. The caller knows that the table is as long.
template <class Kernel>
Kernel** FindKernel(const void* table, size_t words, Kernel* kernel) {
  Kernel* const* const first = static_cast<Kernel* const*>(table);
  if (!first) return nullptr;
  Kernel* const* const at = std::find(first, first + words, kernel);
  return at == first + words ? nullptr : const_cast<Kernel**>(at);
}

}  // namespace dovetail
