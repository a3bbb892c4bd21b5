// Moving elements between two strided regions of memory: the one loop behind the data movement kernels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/tensor_type.h"
#include "core/tensor_view.h"

namespace dovetail {

// A box of elements on both sides. Strides and offsets count elements; a source stride of 0 repeats.
struct StridedCopy {
  size_t rank = 0;
  std::array<int64_t, kMaxRank> sizes{}, to_strides{}, from_strides{};
  int64_t to_offset = 0, from_offset = 0;

  // The box `box` (of the rank of both) at the start of two contiguous tensors of shapes `to` and `from`.
  static StridedCopy Between(const TensorView& to, const TensorView& from, const TensorView& box);
  // `element_bytes` is 1, 2, 4 or 8.
  void Run(void* to, const void* from, size_t element_bytes) const;
};

}  // namespace dovetail
