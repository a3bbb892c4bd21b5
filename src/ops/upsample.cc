#include "ops/upsample.h"

#include <numeric>

namespace dovetail {
namespace {

constexpr int64_t kFinest = 1024;

Result<Dim> Scaled(Dim size, double factor, std::string_view what) {
  if (!(factor > 0) || factor > 0x1p31) return InvalidArgument(what, ": a scale factor of ", FormatDouble(factor));
  if (size.is_constant()) return Dim(static_cast<int64_t>(std::floor(static_cast<double>(size.value()) * factor)));
  if (factor * kFinest != std::floor(factor * kFinest))
    return Unsupported(what, ": size ", size.ToString(), " times ", FormatDouble(factor), "; give the size, or a factor that is a multiple of 1/", kFinest);
  const int64_t numerator = static_cast<int64_t>(factor * kFinest), common = std::gcd(numerator, kFinest);
  return Dim::FloorDiv(size * Dim(numerator / common), kFinest / common);
}

}  // namespace

Status InferUpsample(const InferContext& ctx, const Attr& sizes, const Attr& factors, std::string_view what) {
  const TensorType& self = ctx.operand(0);
  DT_RETURN_IF_ERROR(RequireRank(self, 4, 4, what));
  DT_RETURN_IF_ERROR(RequireFloat(self, what));
  const auto* list = factors.get<std::vector<double>>();
  if (sizes.is_none() == (list == nullptr)) return InvalidArgument(what, " takes either output_size or scale_factors");
  const std::span<const Dim> to = list ? std::span<const Dim>() : DimsOf(sizes);
  if ((list ? list->size() : to.size()) != 2) return InvalidArgument(what, " of two dimensions with ", list ? list->size() : to.size(), " sizes");
  Shape shape = self.shape;
  for (size_t i = 0; i < 2; ++i) {
    if (!list) {
      shape[2 + i] = to[i];
    } else {
      DT_ASSIGN_OR_RETURN(shape[2 + i], Scaled(self.shape[2 + i], (*list)[i], what));
    }
    for (Dim d : {self.shape[2 + i], shape[2 + i]})
      if (d.is_constant() && d.value() < 1) return InvalidArgument(what, " of ", self.ToString(), " to ", shape.ToString());
  }
  return SetResult(ctx, 0, self.dtype, shape);
}

}  // namespace dovetail
