#include "ops/reduce.h"

namespace dovetail {

Result<uint32_t> ReducedDims(const Attr& dim, size_t rank) {
  const std::span<const Dim> dims = DimsOf(dim);
  if (dims.empty()) return (uint32_t{1} << rank) - 1;
  uint32_t reduced = 0;
  for (Dim d : dims) {
    DT_ASSIGN_OR_RETURN(const size_t axis, NormalizeAxis(d.constant().value_or(INT64_MAX), rank));
    if (reduced >> axis & 1) return InvalidArgument("dimension ", axis, " appears more than once in the dimensions to reduce");
    reduced |= uint32_t{1} << axis;
  }
  return reduced;
}

Shape ReducedShape(const Shape& shape, uint32_t reduced, bool keepdim) {
  Shape out;
  for (size_t i = 0; i < shape.rank(); ++i) {
    if (!(reduced >> i & 1)) out.push_back(shape[i]);
    else if (keepdim) out.push_back(1);
  }
  return out;
}

Reduction::Reduction(const TensorView& in, const Attr& dim) : in_(in), reduced_(ReducedDims(dim, in.rank).value()) {
  for (size_t i = 0; i < in.rank; ++i) (reduced_ >> i & 1 ? count_ : results_) *= in.sizes[i];
}

int64_t Reduction::Offset(int64_t i, int64_t k) const {
  int64_t offset = 0, step = 1;
  for (size_t d = in_.rank; d-- > 0; step *= in_.sizes[d]) {
    int64_t& position = reduced_ >> d & 1 ? k : i;
    offset += position % in_.sizes[d] * step;
    position /= in_.sizes[d];
  }
  return offset;
}

}  // namespace dovetail
