#include "ops/advanced_index.h"
#include "ops/dispatch.h"
#include "ops/infer_util.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType &weight = c.operand(0), &indices = c.operand(1);
  DT_RETURN_IF_ERROR(RequireRank(weight, 2, 2, "embedding"));
  DT_RETURN_IF_ERROR(RequireRank(indices, 0, kMaxRank - 1, "embedding"));
  DT_RETURN_IF_ERROR(RequireIndex(indices, "embedding"));
  Shape shape = indices.shape;
  shape.push_back(weight.shape[1]);
  return SetMovedResult(c, shape);
}

Status Reference(const KernelContext& c) {
  const TensorView &weight = c.in(0), &indices = c.in(1);
  const size_t row = static_cast<size_t>(weight.sizes[1]) * ByteSize(weight.dtype);
  for (int64_t i = 0; i < indices.numel(); ++i) {
    const int64_t index = IndexAt(indices, i);
    if (index < 0 || index >= weight.sizes[0]) return IndexOutOfBounds(index, 0, weight.sizes[0]);
    CopyBytes(c.out().as<std::byte>() + i * row, weight.as<std::byte>() + index * row, row);
  }
  return OkStatus();
}

}  // namespace

// padding_idx, scale_grad_by_freq and sparse matter to training only.
constinit const OpDef kOpEmbedding = {
    "embedding",
    "embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor",
    "aten.embedding.default",
    "aten::embedding.out",
    kDataMovement,
    Infer,
    Reference};

}  // namespace dovetail
