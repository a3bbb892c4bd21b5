#include "ops/recurrent.h"

namespace dovetail {

Status InferRecurrent(const InferContext& c, size_t parts, size_t states, std::string_view what) {
  const TensorType &gates = c.operand(0), &h0 = c.operand(1), &weight = c.operand(1 + states), &bias = c.operand(2 + states);
  DT_RETURN_IF_ERROR(RequireRank(gates, 3, 3, what));
  DT_RETURN_IF_ERROR(RequireRank(h0, 2, 2, what));
  DT_RETURN_IF_ERROR(RequireFloat(gates, what));
  const Dim width = h0.shape[1], all = width * Dim(static_cast<int64_t>(parts));
  const bool fits = gates.shape[2] == all && gates.shape[1] == h0.shape[0] && weight.shape == Shape{all, width} && weight.dtype == gates.dtype &&
                    h0.dtype == gates.dtype && (bias.dtype == DType::kNone || (bias.dtype == gates.dtype && bias.shape == Shape{all})) &&
                    (states == 1 || (c.operand(2).dtype == h0.dtype && c.operand(2).shape == h0.shape));
  if (!fits)
    return InvalidArgument(what, " of gates ", gates.ToString(), ", a first state ", h0.ToString(), " and weights ", weight.ToString(), " that do not fit together");
  DT_RETURN_IF_ERROR(SetResult(c, 0, gates.dtype, {gates.shape[0], gates.shape[1], width}));
  for (size_t i = 0; i < states; ++i) DT_RETURN_IF_ERROR(SetResult(c, 1 + i, gates.dtype, h0.shape));
  return OkStatus();
}

}  // namespace dovetail
