#include "ops/affine.h"

namespace dovetail {

Result<Shape> BlockGrid(const Shape& shape, const Attr& block_size, std::string_view what) {
  const std::span<const Dim> block = DimsOf(block_size);
  if (block.size() != shape.rank()) return InvalidArgument(what, " of [", shape.ToString(), "] with blocks of ", block.size(), " dims");
  Shape grid;
  for (size_t d = 0; d < shape.rank(); ++d) {
    if (block[d] == shape[d]) {
      grid.push_back(1);
      continue;
    }
    const std::optional<Dim> blocks = block[d] == Dim(0) ? std::nullopt : Dim::DivideExact(shape[d], block[d]);
    if (!blocks || (block[d].is_constant() && block[d].value() < 0))
      return InvalidArgument(what, " of [", shape.ToString(), "] with blocks of ", block[d].ToString(), " in dimension ", d);
    grid.push_back(*blocks);
  }
  return grid;
}

Status CheckBlockParameters(const InferContext& c, const Shape& grid, std::string_view what) {
  const TensorType &scale = c.operand(1), &zero_point = c.operand(2);
  if (!IsFloat(scale.dtype) || scale.shape.numel() != grid.numel())
    return InvalidArgument(what, " with blocks [", grid.ToString(), "] and scales ", scale.ToString());
  if (c.has(2) && (!IsInteger(zero_point.dtype) || zero_point.shape.numel() != grid.numel()))
    return InvalidArgument(what, " with blocks [", grid.ToString(), "] and zero points ", zero_point.ToString());
  return OkStatus();
}

}  // namespace dovetail
