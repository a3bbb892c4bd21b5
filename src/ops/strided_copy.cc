#include "ops/strided_copy.h"

#include <cstring>

namespace dovetail {
namespace {

template <class T>
void CopyRow(std::byte* to, int64_t to_stride, const std::byte* from, int64_t from_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * to_stride * int64_t{sizeof(T)}, from + i * from_stride * int64_t{sizeof(T)}, sizeof(T));
}

// Drops dims of size 1 and joins neighbours that are contiguous on both sides, so that rows are as long as they can be.
StridedCopy Simplify(const StridedCopy& c) {
  StridedCopy s = c;
  s.rank = 0;
  for (size_t d = 0; d < c.rank; ++d) {
    if (c.sizes[d] == 1) continue;
    const bool joins = s.rank > 0 && s.to_strides[s.rank - 1] == c.to_strides[d] * c.sizes[d] &&
                       s.from_strides[s.rank - 1] == c.from_strides[d] * c.sizes[d];
    if (!joins) s.sizes[s.rank++] = 1;
    s.sizes[s.rank - 1] *= c.sizes[d];
    s.to_strides[s.rank - 1] = c.to_strides[d];
    s.from_strides[s.rank - 1] = c.from_strides[d];
  }
  if (s.rank == 0) {
    s.rank = 1;
    s.sizes[0] = s.to_strides[0] = s.from_strides[0] = 1;
  }
  return s;
}

}  // namespace

StridedCopy StridedCopy::Between(const TensorView& to, const TensorView& from, const TensorView& box) {
  StridedCopy c;
  c.rank = box.rank;
  for (size_t d = 0; d < box.rank; ++d) {
    c.sizes[d] = box.sizes[d];
    c.to_strides[d] = to.stride(d);
    c.from_strides[d] = from.stride(d);
  }
  return c;
}

void StridedCopy::Run(void* to, const void* from, size_t element_bytes) const {
  for (size_t d = 0; d < rank; ++d)
    if (sizes[d] == 0) return;
  const StridedCopy c = Simplify(*this);
  const int64_t bytes = static_cast<int64_t>(element_bytes);
  const size_t last = c.rank - 1;
  const int64_t n = c.sizes[last], to_stride = c.to_strides[last], from_stride = c.from_strides[last];
  std::byte* t = static_cast<std::byte*>(to) + c.to_offset * bytes;
  const std::byte* f = static_cast<const std::byte*>(from) + c.from_offset * bytes;
  std::array<int64_t, kMaxRank> index{};
  while (true) {
    if (to_stride == 1 && from_stride == 1) std::memcpy(t, f, static_cast<size_t>(n * bytes));
    else if (bytes == 1) CopyRow<uint8_t>(t, to_stride, f, from_stride, n);
    else if (bytes == 2) CopyRow<uint16_t>(t, to_stride, f, from_stride, n);
    else if (bytes == 4) CopyRow<uint32_t>(t, to_stride, f, from_stride, n);
    else CopyRow<uint64_t>(t, to_stride, f, from_stride, n);
    size_t d = last;
    while (d-- > 0) {
      t += c.to_strides[d] * bytes;
      f += c.from_strides[d] * bytes;
      if (++index[d] < c.sizes[d]) break;
      t -= c.to_strides[d] * c.sizes[d] * bytes;
      f -= c.from_strides[d] * c.sizes[d] * bytes;
      index[d] = 0;
    }
    if (d == SIZE_MAX) return;
  }
}

}  // namespace dovetail
