// PyTorch's advanced indexing with integer tensors, shared by index and index_put.
#pragma once

#include <array>

#include "core/tensor_type.h"
#include "core/tensor_view.h"

namespace dovetail {

// Where the dims of self[indices] come from. Dims of self that an index tensor takes are replaced by the index tensors' common
// (broadcast) shape: in place of them when they stand side by side, else in front of all others. An absent index (dtype kNone), and
// every dim past the last index, keeps its dim.
struct IndexLayout {
  Shape index_shape;  // common shape of the index tensors
  Shape result;       // shape of self[indices]
  size_t at = 0;      // where the dims of index_shape stand in `result`
};
// Refuses boolean masks: the shape they give depends on data.
Result<IndexLayout> LayOutIndexed(const Shape& self, std::span<const TensorType> indices);

// Finds the elements of self[indices] one by one; for reference kernels, so it is plain and slow. Trusts shapes and dtypes.
class IndexWalker {
 public:
  IndexWalker(const TensorView& self, std::span<const TensorView> indices);
  // Elements of the result, and its shape.
  int64_t size() const { return size_; }
  std::span<const int64_t> shape() const { return {shape_.data(), rank_}; }
  // Offset in self of element `position` of the result. Indices from -size count from the end; others are OutOfRange.
  Result<int64_t> Offset(int64_t position) const;

 private:
  TensorView self_;
  std::span<const TensorView> indices_;
  std::array<int64_t, kMaxRank> shape_{};
  size_t rank_ = 0, at_ = 0, index_rank_ = 0;
  int64_t size_ = 1;
};

// The offset that a wrapped index stands for, or OutOfRange: "index 7 is out of bounds for dimension 1 with size 5".
Result<int64_t> WrapIndex(int64_t index, size_t dim, int64_t size);
Status IndexOutOfBounds(int64_t index, size_t dim, int64_t size);
// Element i of a tensor of dtype i32 or i64.
inline int64_t IndexAt(const TensorView& t, int64_t i) {
  return t.dtype == DType::kI32 ? t.as<int32_t>()[i] : t.as<int64_t>()[i];
}
inline bool IsIndexType(DType t) { return t == DType::kI32 || t == DType::kI64; }

// index_put and index_put_ are one operator, that copies self or doesn't (index_put.cc).
struct InferContext;
struct KernelContext;
Status InferIndexPut(const InferContext& c);
Status ReferenceIndexPut(const KernelContext& c);

}  // namespace dovetail
