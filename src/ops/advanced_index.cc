#include "ops/advanced_index.h"

#include "base/check.h"

namespace dovetail {

Result<IndexLayout> LayOutIndexed(const Shape& self, std::span<const TensorType> indices) {
  if (indices.size() > self.rank()) return InvalidArgument(indices.size(), " indices for a tensor of rank ", self.rank());
  IndexLayout layout;
  size_t first = 0, last = 0, present = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    const TensorType& t = indices[i];
    if (t.dtype == DType::kNone) continue;
    if (t.dtype == DType::kBool || t.dtype == DType::kU8)
      return Unsupported("index ", i, " is a mask (", Name(t.dtype), "): the shape of the result would depend on its values; use where");
    if (!IsIndexType(t.dtype)) return InvalidArgument("index ", i, " has dtype ", Name(t.dtype), "; indices are i64 or i32");
    DT_ASSIGN_OR_RETURN(layout.index_shape, Broadcast(layout.index_shape, t.shape));
    if (present++ == 0) first = i;
    last = i;
  }
  if (present == 0) return InvalidArgument("indexing needs at least one index tensor");
  if (self.rank() - present + layout.index_shape.rank() > kMaxRank)
    return Unsupported("the result of indexing has more than ", kMaxRank, " dims");
  const bool side_by_side = last - first + 1 == present;
  layout.at = side_by_side ? first : 0;
  for (size_t i = 0; i < self.rank(); ++i)
    if (i >= indices.size() || indices[i].dtype == DType::kNone) layout.result.push_back(self[i]);
  for (size_t i = 0; i < layout.index_shape.rank(); ++i) layout.result.insert(layout.at + i, layout.index_shape[i]);
  return layout;
}

Status IndexOutOfBounds(int64_t index, size_t dim, int64_t size) {
  return OutOfRange("index ", index, " is out of bounds for dimension ", dim, " with size ", size);
}
Result<int64_t> WrapIndex(int64_t index, size_t dim, int64_t size) {
  if (index < -size || index >= size) return IndexOutOfBounds(index, dim, size);
  return index < 0 ? index + size : index;
}

IndexWalker::IndexWalker(const TensorView& self, std::span<const TensorView> indices) : self_(self), indices_(indices) {
  std::array<TensorType, kMaxRank> types;
  for (size_t i = 0; i < indices.size(); ++i)
    if (indices[i].present()) types[i] = indices[i].type();
  Result<IndexLayout> layout = LayOutIndexed(self.type().shape, {types.data(), indices.size()});
  DT_CHECK(layout.ok());
  at_ = layout->at;
  index_rank_ = layout->index_shape.rank();
  rank_ = layout->result.rank();
  for (size_t i = 0; i < rank_; ++i) size_ *= shape_[i] = layout->result[i].value();
}

Result<int64_t> IndexWalker::Offset(int64_t position) const {
  std::array<int64_t, kMaxRank> at{};
  for (size_t i = rank_; i-- > 0; position /= shape_[i]) at[i] = position % shape_[i];
  int64_t offset = 0;
  size_t kept = 0;  // dim of the result that the next kept dim of self stands in
  for (size_t i = 0; i < self_.rank; ++i) {
    int64_t index;
    if (i < indices_.size() && indices_[i].present()) {
      const TensorView& t = indices_[i];
      int64_t element = 0;
      for (size_t k = 0; k < t.rank; ++k) element = element * t.sizes[k] + (t.sizes[k] == 1 ? 0 : at[at_ + k + index_rank_ - t.rank]);
      DT_ASSIGN_OR_RETURN(index, WrapIndex(IndexAt(t, element), i, self_.sizes[i]));
    } else {
      if (kept == at_) kept += index_rank_;
      index = at[kept++];
    }
    offset = offset * self_.sizes[i] + index;
  }
  return offset;
}

}  // namespace dovetail
