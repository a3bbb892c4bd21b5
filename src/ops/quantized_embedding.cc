#include "ops/advanced_index.h"
#include "ops/infer_util.h"
#include "ops/op_def.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType& indices = c.operand(2);
  DT_ASSIGN_OR_RETURN(const Shape dims, QuantizedMatrixShape(c.operand(0), c.operand(1)));
  DT_RETURN_IF_ERROR(RequireRank(indices, 0, kMaxRank - 1, "quantized_embedding"));
  DT_RETURN_IF_ERROR(RequireIndex(indices, "quantized_embedding"));
  Shape shape = indices.shape;
  shape.push_back(dims[1]);
  return SetResult(c, 0, DType::kF32, shape);
}

Status Reference(const KernelContext& c) {
  const QuantizedMatrix w{c.in(0), c.in(1)};
  const int64_t columns = w.columns();
  float* out = c.out().as<float>();
  for (int64_t i = 0; i < c.in(2).numel(); ++i) {
    const int64_t index = IndexAt(c.in(2), i);
    if (index < 0 || index >= w.rows()) return IndexOutOfBounds(index, 0, w.rows());
    for (int64_t k = 0; k < columns; ++k) *out++ = static_cast<float>(w.at(index, k)) * w.scale_of(index, k);
  }
  return OkStatus();
}

}  // namespace

// Rows of a quantized matrix (as quantized_linear's weight) by index, in f32.
constinit const OpDef kOpQuantizedEmbedding = {"quantized_embedding",
                                               "quantized_embedding(Tensor weight, Tensor weight_scale, Tensor indices) -> Tensor",
                                               "",
                                               "dovetail::quantized_embedding.out",
                                               kFused,
                                               Infer,
                                               Reference};

}  // namespace dovetail
