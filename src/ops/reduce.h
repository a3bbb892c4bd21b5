// What the reductions share: which dims go, the result's shape, and which elements make up one result.
#pragma once

#include <array>

#include "ops/infer_util.h"

namespace dovetail {

// Bit i set: dim i is reduced. None and an empty list mean all. Refuses a dim given twice.
Result<uint32_t> ReducedDims(const Attr& dim, size_t rank);
Shape ReducedShape(const Shape& shape, uint32_t reduced, bool keepdim);

class Reduction {
 public:
  // `dim` is one that ReducedDims has accepted.
  Reduction(const TensorView& in, const Attr& dim);
  int64_t results() const { return results_; }
  // Elements that make up one result.
  int64_t count() const { return count_; }
  // Offset in the input of element `k` of result `i`, both in row-major order.
  int64_t Offset(int64_t i, int64_t k) const;

 private:
  TensorView in_;
  uint32_t reduced_;
  int64_t results_ = 1, count_ = 1;
};

}  // namespace dovetail
