#include "ops/dispatch.h"
#include "ops/dot.h"
#include "ops/op_def.h"
#include "ops/reduce.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType& self = c.operand(0);
  const DType dtype = c.attr(1).Type(IsFloat(self.dtype) ? self.dtype : DType::kI64);
  if (!IsFloat(dtype) && !IsInteger(dtype)) return Unsupported("cumsum to ", Name(dtype));
  DT_RETURN_IF_ERROR(NormalizeAxis(c.attr(0).Int(), self.rank()).status().Clone());
  return SetResult(c, 0, dtype, self.shape);
}

Status Reference(const KernelContext& c) {
  const Reduction rows(c.in(0), c.attr(0));
  return DispatchNumber(c.out().dtype, [&]<class T>() -> Status {
    const Reader<T> in(c.in(0));
    for (int64_t i = 0; i < rows.results(); ++i) {
      SumOf<T> sum = 0;
      for (int64_t k = 0; k < rows.count(); ++k) {
        const int64_t at = rows.Offset(i, k);
        sum += static_cast<SumOf<T>>(in[at]);
        c.out().as<T>()[at] = Convert<T>(sum);
      }
    }
    return OkStatus();
  });
}

}  // namespace

constinit const OpDef kOpCumsum = {"cumsum",
                                   "cumsum(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
                                   "",
                                   "aten::cumsum.out",
                                   kPure,
                                   Infer,
                                   Reference};

}  // namespace dovetail
