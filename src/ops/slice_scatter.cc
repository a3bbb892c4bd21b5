#include "ops/dispatch.h"
#include "ops/infer_util.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType &self = c.operand(0), &src = c.operand(1);
  DT_RETURN_IF_ERROR(RequireRank(self, 1, kMaxRank, "slice_scatter"));
  DT_ASSIGN_OR_RETURN(const size_t dim, NormalizeAxis(c.attr(0).Int(), self.rank()));
  DT_ASSIGN_OR_RETURN(const SliceRange range, ResolveSlice(self.shape[dim], c.attr(1), c.attr(2), c.attr(3)));
  if (src.dtype != self.dtype) return InvalidArgument("slice_scatter of ", Name(src.dtype), " into a tensor of ", Name(self.dtype));
  Shape slice = self.shape;
  slice[dim] = range.length;
  bool same = src.rank() == slice.rank();
  // Two spellings of one symbolic size cannot always be told equal; at run time all are constants.
  for (size_t i = 0; same && i < slice.rank(); ++i)
    same = src.shape[i] == slice[i] || !src.shape[i].is_constant() || !slice[i].is_constant();
  if (!same) return InvalidArgument("slice_scatter of a tensor [", src.shape.ToString(), "] into a slice [", slice.ToString(), "]");
  return SetMovedResult(c, self.shape);
}

Status Reference(const KernelContext& c) {
  const TensorView &self = c.in(0), &src = c.in(1);
  DT_ASSIGN_OR_RETURN(const size_t dim, NormalizeAxis(c.attr(0).Int(), self.rank));
  DT_ASSIGN_OR_RETURN(const SliceRange range, ResolveSlice(self.sizes[dim], c.attr(1), c.attr(2), c.attr(3)));
  if (c.out().data != self.data) CopyBytes(c.out().data, self.data, self.nbytes());
  const int64_t size = self.sizes[dim], length = src.sizes[dim];
  const size_t run = static_cast<size_t>(self.stride(dim)) * ByteSize(self.dtype);
  int64_t outer = 1;
  for (size_t i = 0; i < dim; ++i) outer *= self.sizes[i];
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t k = 0; k < length; ++k)
      CopyBytes(c.out().as<std::byte>() + (o * size + range.start.value() + k * range.step) * run,
                src.as<std::byte>() + (o * length + k) * run, run);
  return OkStatus();
}

}  // namespace

constinit const OpDef kOpSliceScatter = {
    "slice_scatter",
    "slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor",
    "aten.slice_scatter.default",
    "aten::slice_scatter.out",
    kDataMovement,
    Infer,
    Reference};

}  // namespace dovetail
