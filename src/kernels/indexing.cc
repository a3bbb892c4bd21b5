// embedding, index and index_put with one index tensor: whole rows are copied. Other forms by the reference.
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "ops/advanced_index.h"
#include "ops/dispatch.h"

namespace dovetail::kernels {
namespace {

// A tensor seen as [outer, size, row], its middle dim being the one that is indexed.
struct IndexedDim {
  int64_t outer = 1, size;
  size_t row;  // in bytes
  size_t dim;
  const TensorView* index;

  IndexedDim(const TensorView& self, size_t indexed, const TensorView& t) : size(self.sizes[indexed]), dim(indexed), index(&t) {
    for (size_t d = 0; d < dim; ++d) outer *= self.sizes[d];
    row = static_cast<size_t>(self.stride(dim)) * ByteSize(self.dtype);
  }
  int64_t count() const { return index->numel(); }
  int64_t At(int64_t i) const {
    const int64_t at = IndexAt(*index, i);
    return at < 0 ? at + size : at;
  }
  Status Check() const {
    for (int64_t i = 0; i < count(); ++i)
      if (const int64_t at = IndexAt(*index, i); at < -size || at >= size) return IndexOutOfBounds(at, dim, size);
    return OkStatus();
  }
};

// out[o, i] = self[o, index[i]]
void Gather(const KernelContext& c, const IndexedDim& d, const void* self, void* out) {
  const int64_t n = d.count();
  ParallelRanges(c.pool, d.outer * n, GrainOf(static_cast<int64_t>(d.row), kGrainBytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      CopyBytes(static_cast<std::byte*>(out) + static_cast<size_t>(i) * d.row,
                static_cast<const std::byte*>(self) + static_cast<size_t>(i / n * d.size + d.At(i % n)) * d.row, d.row);
    }
  });
}

// The dim that the only index tensor stands at, or -1 when there are several.
int OnlyIndex(std::span<const TensorView> indices) {
  int dim = -1;
  for (size_t i = 0; i < indices.size(); ++i) {
    if (!indices[i].present()) continue;
    if (dim >= 0) return -1;
    dim = static_cast<int>(i);
  }
  return dim;
}

}  // namespace

Status Embedding(const KernelContext& c) {
  const TensorView& weight = c.in(0);
  const IndexedDim rows(weight, 0, c.in(1));
  for (int64_t i = 0; i < rows.count(); ++i)
    if (const int64_t at = IndexAt(c.in(1), i); at < 0 || at >= rows.size) return IndexOutOfBounds(at, 0, rows.size);
  Gather(c, rows, weight.data, c.out().data);
  return OkStatus();
}

Status Index(const KernelContext& c) {
  const std::span<const TensorView> indices = c.inputs.subspan(1);
  const int dim = OnlyIndex(indices);
  if (dim < 0) return GetOp(OpId::kIndex).reference(c);
  const IndexedDim d(c.in(0), static_cast<size_t>(dim), indices[static_cast<size_t>(dim)]);
  if (c.out().numel() == 0) return GetOp(OpId::kIndex).reference(c);
  DT_RETURN_IF_ERROR(d.Check());
  Gather(c, d, c.in(0).data, c.out().data);
  return OkStatus();
}

// The outer items are apart, so they may run in parallel; within one the order counts where an index comes twice.
Status IndexPut(const KernelContext& c) {
  const TensorView &self = c.in(0), &values = c.inputs.back(), &out = c.out();
  const std::span<const TensorView> indices = c.inputs.subspan(1, c.inputs.size() - 2);
  const int dim = OnlyIndex(indices);
  if (dim < 0 || c.attr(0).Bool()) return ReferenceIndexPut(c);
  const IndexedDim d(self, static_cast<size_t>(dim), indices[static_cast<size_t>(dim)]);
  const int64_t n = d.count();
  const size_t bytes = static_cast<size_t>(d.outer * n) * d.row;
  if (bytes == 0 || values.nbytes() != bytes) return ReferenceIndexPut(c);
  DT_RETURN_IF_ERROR(d.Check());
  if (out.data != self.data) ParallelCopy(c.pool, out.data, self.data, self.nbytes());
  const std::byte* from = values.as<std::byte>();
  std::byte* to = out.as<std::byte>();
  ParallelRanges(c.pool, d.outer, GrainOf(n * static_cast<int64_t>(d.row), kGrainBytes), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o)
      for (int64_t i = 0; i < n; ++i)
        std::memcpy(to + static_cast<size_t>(o * d.size + d.At(i)) * d.row, from + static_cast<size_t>(o * n + i) * d.row, d.row);
  });
  return OkStatus();
}

Status IndexPutInplace(const KernelContext& c) { return IndexPut(c); }

}  // namespace dovetail::kernels
