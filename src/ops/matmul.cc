#include "ops/dot.h"
#include "ops/infer_util.h"
#include "ops/matmul.h"

namespace dovetail {
namespace {

// All but the last two dims; none of a vector.
Shape BatchDims(const Shape& s) { return s.rank() <= 2 ? Shape() : Shape(s.dims().first(s.rank() - 2)); }

// Offset of batch item `i` of `out` in an operand whose batch dims broadcast to it.
int64_t BatchOffset(const TensorView& t, const TensorView& out, size_t batch_rank, int64_t i) {
  const size_t own = t.rank <= 2 ? 0 : t.rank - 2u;
  int64_t offset = 0, step = own ? t.stride(own - 1) : 0;
  for (size_t k = 0; k < own; ++k) {
    const size_t dim = own - 1 - k, out_dim = batch_rank - 1 - k;
    if (t.sizes[dim] != 1) offset += i % out.sizes[out_dim] * step;
    i /= out.sizes[out_dim];
    step *= t.sizes[dim];
  }
  return offset;
}

}  // namespace

Status InferMatmul(const InferContext& c) {
  const TensorType &self = c.operand(0), &other = c.operand(1);
  DT_RETURN_IF_ERROR(RequireRank(self, 1, kMaxRank, "matmul"));
  DT_RETURN_IF_ERROR(RequireRank(other, 1, kMaxRank, "matmul"));
  if (self.dtype != other.dtype || self.dtype == DType::kBool)
    return InvalidArgument("matmul of ", Name(self.dtype), " and ", Name(other.dtype));
  if (self.shape.back() != other.shape[other.rank() == 1 ? 0 : other.rank() - 2])
    return InvalidArgument("matmul of [", self.shape.ToString(), "] and [", other.shape.ToString(), "]: the inner dims differ");
  DT_ASSIGN_OR_RETURN(Shape shape, Broadcast(BatchDims(self.shape), BatchDims(other.shape)));
  if (self.rank() > 1) shape.push_back(self.shape[self.rank() - 2]);
  if (other.rank() > 1) shape.push_back(other.shape.back());
  return SetResult(c, 0, self.dtype, shape);
}

MatmulPlan::MatmulPlan(const TensorView& self, const TensorView& other, const TensorView& out) : self_(self), other_(other), out_(out) {
  rows = self.rank == 1 ? 1 : self.sizes[self.rank - 2];
  inner = self.sizes[self.rank - 1];
  columns = other.rank == 1 ? 1 : other.sizes[other.rank - 1];
  batch_rank_ = out.rank - (self.rank > 1 ? 1u : 0u) - (other.rank > 1 ? 1u : 0u);
  for (size_t i = 0; i < batch_rank_; ++i) batch *= out.sizes[i];
}

MatmulItem MatmulPlan::Item(int64_t i) const { return {BatchOffset(self_, out_, batch_rank_, i), BatchOffset(other_, out_, batch_rank_, i)}; }

Status ReferenceMatmul(const KernelContext& c) {
  const MatmulPlan plan(c.in(0), c.in(1), c.out());
  return DispatchNumber(c.out().dtype, [&]<class T>() -> Status {
    T* out = c.out().as<T>();
    for (int64_t i = 0; i < plan.batch; ++i) {
      const MatmulItem item = plan.Item(i);
      for (int64_t r = 0; r < plan.rows; ++r)
        for (int64_t k = 0; k < plan.columns; ++k)
          *out++ = Convert<T>(Dot(c.in(0).as<T>() + item.self + r * plan.inner, 1, c.in(1).as<T>() + item.other + k, plan.columns, plan.inner));
    }
    return OkStatus();
  });
}

constinit const OpDef kOpMatmul = {"matmul",
                                   "matmul(Tensor self, Tensor other) -> Tensor",
                                   "aten.matmul.default",
                                   "dovetail::matmul.out",
                                   kPure,
                                   InferMatmul,
                                   ReferenceMatmul};

}  // namespace dovetail
