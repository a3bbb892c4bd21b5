#include <array>
#include <vector>

#include "ops/infer_util.h"
#include "ops/op_def.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const auto is_pair = [&](size_t integers, size_t scales) {
    const TensorType &q = c.operand(integers), &scale = c.operand(scales);
    if (q.dtype != DType::kI8 || scale.dtype != DType::kF32 || q.rank() == 0) return false;
    Shape rows = q.shape;
    rows[rows.rank() - 1] = 1;
    return scale.shape == rows;
  };
  for (size_t i : {1, 2})
    if (!is_pair(i, i + 2))
      return InvalidArgument("quantized_attention's ", i == 1 ? "key" : "value", " is ", c.operand(i).ToString(), " with scales ", c.operand(i + 2).ToString(),
                             "; it must be i8 with f32 scales, one for each row");
  std::array<TensorType, 5> floats;
  floats[0] = c.operand(0);
  for (size_t i : {1, 2}) floats[i] = TensorType(DType::kF32, c.operand(i).shape);
  for (size_t i : {3, 4})
    if (c.has(i + 2)) floats[i] = c.operand(i + 2);
  return kOpAttention.infer({floats, c.attrs, c.results, {}});
}

Status Reference(const KernelContext& c) {
  std::array<std::vector<float>, 2> rows;
  std::array<TensorView, 5> floats{c.in(0), c.in(1), c.in(2), c.has(5) ? c.in(5) : TensorView(), c.has(6) ? c.in(6) : TensorView()};
  for (size_t i : {0, 1}) {
    const TensorView &q = c.in(i + 1), &scale = c.in(i + 3);
    rows[i].resize(static_cast<size_t>(q.numel()));
    floats[i + 1].dtype = DType::kF32;
    floats[i + 1].data = rows[i].data();
    const std::array<TensorView, 2> in = {q, scale};
    DT_RETURN_IF_ERROR(kOpDequantizeRows.reference({in, {}, {&floats[i + 1], 1}, nullptr, {}}));
  }
  return kOpAttention.reference({floats, c.attrs, c.outputs, nullptr, {}});
}

}  // namespace

// attention over keys and values stored as rows of int8 (quantize_rows): that of dequantize_rows(key, key_scale) and
// dequantize_rows(value, value_scale), which need not exist.
constinit const OpDef kOpQuantizedAttention = {
    "quantized_attention",
    "quantized_attention(Tensor query, Tensor key, Tensor value, Tensor key_scale, Tensor value_scale, Tensor? attn_mask=None, "
    "Tensor? positions=None, bool is_causal=False, float? scale=None, bool query_by_row=False, bool keys_by_row=False) -> Tensor",
    "",
    "dovetail::quantized_attention.out",
    kQuantized,
    Infer,
    Reference};

}  // namespace dovetail
