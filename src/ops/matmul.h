// The general matrix product, which bmm and matmul share.
#pragma once

#include "ops/op_def.h"

namespace dovetail {

// Type checks and the shape of torch.matmul: ranks of at least 1, batch dims broadcast.
Status InferMatmul(const InferContext& c);
Status ReferenceMatmul(const KernelContext& c);

// Offsets of the matrices that make up batch item `i` of the result; kernels use it too.
struct MatmulItem {
  int64_t self, other;
};
class MatmulPlan {
 public:
  MatmulPlan(const TensorView& self, const TensorView& other, const TensorView& out);
  int64_t batch = 1, rows, inner, columns;
  MatmulItem Item(int64_t i) const;

 private:
  TensorView self_, other_, out_;
  size_t batch_rank_;
};

}  // namespace dovetail
