#include "ops/infer_util.h"
#include "ops/matmul.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType &self = c.operand(0), &mat2 = c.operand(1);
  DT_RETURN_IF_ERROR(RequireRank(self, 3, 3, "bmm"));
  DT_RETURN_IF_ERROR(RequireRank(mat2, 3, 3, "bmm"));
  if (self.shape[0] != mat2.shape[0])
    return InvalidArgument("bmm of [", self.shape.ToString(), "] and [", mat2.shape.ToString(), "]: the batches differ");
  return InferMatmul(c);
}

}  // namespace

constinit const OpDef kOpBmm = {"bmm",
                                "bmm(Tensor self, Tensor mat2) -> Tensor",
                                "aten.bmm.default",
                                "aten::bmm.out",
                                kPure,
                                Infer,
                                ReferenceMatmul};

}  // namespace dovetail
