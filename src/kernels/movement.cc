// Copies: clone, copy_, slice_scatter and permute.
#include <array>

#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "ops/dispatch.h"
#include "ops/infer_util.h"

namespace dovetail::kernels {
namespace {

// A permutation with neighbours that stay together joined; sizes are the result's, strides count elements of the input.
struct Permutation {
  size_t rank = 0;
  std::array<int64_t, kMaxRank> sizes{}, strides{};

  Permutation(const TensorView& in, const TensorView& out, std::span<const Dim> dims) {
    for (size_t d = 0; d < out.rank; ++d) {
      const size_t axis = *NormalizeAxis(dims[d].value(), in.rank);
      if (out.sizes[d] == 1) continue;
      const int64_t stride = in.stride(axis);
      const bool joins = rank > 0 && strides[rank - 1] == stride * out.sizes[d];
      if (!joins) sizes[rank++] = 1;
      sizes[rank - 1] *= out.sizes[d];
      strides[rank - 1] = stride;
    }
    if (rank == 0) {
      sizes[rank] = 1;
      strides[rank++] = 1;
    }
  }
  // Offset in the input of item `i` of the dims before dim `end`.
  int64_t Offset(int64_t i, size_t end) const {
    int64_t at = 0;
    for (size_t d = end; d-- > 0; i /= sizes[d]) at += i % sizes[d] * strides[d];
    return at;
  }
};

// to[r, k] = from[r + k * stride] for a tile that the first cache holds on both sides.
template <class T>
void TransposeTiles(T* to, int64_t columns, const T* from, int64_t row_stride, int64_t stride, int64_t rows) {
  constexpr int64_t kTile = 16;
  for (int64_t r0 = 0; r0 < rows; r0 += kTile)
    for (int64_t k0 = 0; k0 < columns; k0 += kTile)
      for (int64_t r = r0; r < std::min(rows, r0 + kTile); ++r)
        for (int64_t k = k0; k < std::min(columns, k0 + kTile); ++k) to[r * columns + k] = from[r * row_stride + k * stride];
}

template <class T>
void Permute(const KernelContext& c, const Permutation& p) {
  const T* from = c.in(0).as<T>();
  T* to = c.out().as<T>();
  const size_t last = p.rank - 1;
  const int64_t columns = p.sizes[last], rows = c.out().numel() / columns;
  if (p.strides[last] == 1) {
    ParallelRanges(c.pool, rows, GrainOf(columns), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) std::memcpy(to + r * columns, from + p.Offset(r, last), static_cast<size_t>(columns) * sizeof(T));
    });
    return;
  }
  // The last two dims of the result are a matrix that is gathered in tiles.
  const int64_t height = last ? p.sizes[last - 1] : 1, step = last ? p.strides[last - 1] : 0, band = std::min(height, GrainOf(columns));
  const int64_t bands = (height + band - 1) / band;
  ParallelFor(c.pool, rows / height * bands, [&](int64_t i) {
    const int64_t matrix = i / bands, row = i % bands * band;
    TransposeTiles(to + (matrix * height + row) * columns, columns, from + (last ? p.Offset(matrix, last - 1) : 0) + row * step, step,
                   p.strides[last], std::min(band, height - row));
  });
}

}  // namespace

Status Clone(const KernelContext& c) {
  ParallelCopy(c.pool, c.out().data, c.in(0).data, c.out().nbytes());
  return OkStatus();
}

Status Copy(const KernelContext& c) {
  const TensorView &src = c.in(1), &out = c.out();
  if (src.dtype != out.dtype || src.nbytes() != out.nbytes()) return GetOp(OpId::kCopy).reference(c);
  ParallelCopy(c.pool, out.data, src.data, out.nbytes());
  return OkStatus();
}

Status SliceScatter(const KernelContext& c) {
  const TensorView &self = c.in(0), &src = c.in(1);
  DT_ASSIGN_OR_RETURN(const size_t dim, NormalizeAxis(c.attr(0).Int(), self.rank));
  DT_ASSIGN_OR_RETURN(const SliceRange range, ResolveSlice(self.sizes[dim], c.attr(1), c.attr(2), c.attr(3)));
  if (range.step != 1) return GetOp(OpId::kSliceScatter).reference(c);
  if (c.out().data != self.data) ParallelCopy(c.pool, c.out().data, self.data, self.nbytes());
  const size_t row = static_cast<size_t>(self.stride(dim)) * ByteSize(self.dtype), run = static_cast<size_t>(src.sizes[dim]) * row;
  int64_t outer = 1;
  for (size_t i = 0; i < dim; ++i) outer *= self.sizes[i];
  std::byte* to = c.out().as<std::byte>() + static_cast<size_t>(range.start.value()) * row;
  ParallelRanges(c.pool, outer, GrainOf(static_cast<int64_t>(run), kGrainBytes), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o)
      CopyBytes(to + static_cast<size_t>(o * self.sizes[dim]) * row, src.as<std::byte>() + static_cast<size_t>(o) * run, run);
  });
  return OkStatus();
}

Status Permute(const KernelContext& c) {
  if (c.out().numel() == 0) return OkStatus();
  const Permutation p(c.in(0), c.out(), DimsOf(c.attr(0)));
  switch (ByteSize(c.out().dtype)) {
    case 1: Permute<uint8_t>(c, p); break;
    case 2: Permute<uint16_t>(c, p); break;
    case 4: Permute<uint32_t>(c, p); break;
    default: Permute<uint64_t>(c, p); break;
  }
  return OkStatus();
}

}  // namespace dovetail::kernels
