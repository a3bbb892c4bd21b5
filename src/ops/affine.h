// What choose_qparams_affine, quantize_affine and dequantize_affine share: a tensor cut into blocks of one size, each with a scale and a zero
// point of its own. Per tensor, per channel, per token and per group are sizes of blocks.
#pragma once

#include <algorithm>
#include <array>

#include "ops/dispatch.h"
#include "ops/infer_util.h"

namespace dovetail {

// Blocks along each dim of a tensor of `shape`.
Result<Shape> BlockGrid(const Shape& shape, const Attr& block_size, std::string_view what);
// `scale` of any floating type and shape, `zero_point` (may be absent) of an integer one, in the order of the blocks.
Status CheckBlockParameters(const InferContext& c, const Shape& grid, std::string_view what);

// The block of each element, of tensors that inference has seen.
class BlockIndex {
 public:
  BlockIndex(const TensorView& t, const Attr& block_size) : tensor_(t) {
    const std::span<const Dim> block = DimsOf(block_size);
    for (size_t d = t.rank; d-- > 0;) {
      block_[d] = std::max<int64_t>(block[d].value(), 1);
      step_[d] = blocks_;
      blocks_ *= t.sizes[d] / block_[d];
    }
  }
  int64_t operator()(int64_t element) const {
    int64_t block = 0;
    for (size_t d = tensor_.rank; d-- > 0;) {
      block += element % tensor_.sizes[d] / block_[d] * step_[d];
      element /= tensor_.sizes[d];
    }
    return block;
  }

 private:
  const TensorView& tensor_;
  std::array<int64_t, kMaxRank> block_{}, step_{};
  int64_t blocks_ = 1;
};

}  // namespace dovetail
