#include <algorithm>
#include <cmath>

#include "ops/dispatch.h"
#include "ops/op_def.h"
#include "ops/reduce.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType& self = c.operand(0);
  DT_RETURN_IF_ERROR(RequireFloat(self, "softmax"));
  DT_RETURN_IF_ERROR(NormalizeAxis(c.attr(0).Int(), self.rank()).status().Clone());
  return SetResult(c, 0, c.attr(1).Bool() ? DType::kF32 : self.dtype, self.shape);
}

Status Reference(const KernelContext& c) {
  const Reduction rows(c.in(0), c.attr(0));
  return DispatchFloat(c.out().dtype, [&]<class T>() -> Status {
    const Reader<double> in(c.in(0));
    for (int64_t i = 0; i < rows.results(); ++i) {
      double most = -INFINITY, sum = 0;
      for (int64_t k = 0; k < rows.count(); ++k) most = std::max(most, in[rows.Offset(i, k)]);
      for (int64_t k = 0; k < rows.count(); ++k) sum += std::exp(in[rows.Offset(i, k)] - most);
      for (int64_t k = 0; k < rows.count(); ++k)
        c.out().as<T>()[rows.Offset(i, k)] = Convert<T>(std::exp(in[rows.Offset(i, k)] - most) / sum);
    }
    return OkStatus();
  });
}

}  // namespace

constinit const OpDef kOpSoftmax = {"softmax",
                                    "softmax(Tensor self, int dim, bool half_to_float=False) -> Tensor",
                                    "aten._softmax.default",
                                    "aten::_softmax.out",
                                    kPure,
                                    Infer,
                                    Reference};

}  // namespace dovetail
