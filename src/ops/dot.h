// Sums of products in reference kernels: floats are summed in double, integers wrap.
#pragma once

#include <type_traits>

#include "ops/dispatch.h"

namespace dovetail {

template <class T>
using SumOf = std::conditional_t<std::is_floating_point_v<ComputeOf<T>>, double, uint64_t>;

// start + sum over k < n of a[k * step_a] * b[k * step_b].
template <class T>
SumOf<T> Dot(const T* a, int64_t step_a, const T* b, int64_t step_b, int64_t n, SumOf<T> start = 0) {
  for (int64_t k = 0; k < n; ++k) start += static_cast<SumOf<T>>(Load(a[k * step_a])) * static_cast<SumOf<T>>(Load(b[k * step_b]));
  return start;
}

}  // namespace dovetail
