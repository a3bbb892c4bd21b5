#include "ops/dot.h"
#include "ops/op_def.h"
#include "ops/reduce.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType& self = c.operand(0);
  const DType dtype = c.attr(2).Type(IsFloat(self.dtype) ? self.dtype : DType::kI64);
  if (!IsFloat(dtype) && !IsInteger(dtype)) return Unsupported("sum to ", Name(dtype));
  DT_ASSIGN_OR_RETURN(const uint32_t reduced, ReducedDims(c.attr(0), self.rank()));
  return SetResult(c, 0, dtype, ReducedShape(self.shape, reduced, c.attr(1).Bool()));
}

Status Reference(const KernelContext& c) {
  const Reduction reduction(c.in(0), c.attr(0));
  return DispatchNumber(c.out().dtype, [&]<class T>() -> Status {
    const Reader<T> in(c.in(0));
    for (int64_t i = 0; i < reduction.results(); ++i) {
      SumOf<T> sum = 0;
      for (int64_t k = 0; k < reduction.count(); ++k) sum += static_cast<SumOf<T>>(in[reduction.Offset(i, k)]);
      c.out().as<T>()[i] = Convert<T>(sum);
    }
    return OkStatus();
  });
}

}  // namespace

constinit const OpDef kOpSum = {"sum",
                                "sum(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
                                "aten.sum.dim_IntList",
                                "aten::sum.IntList_out",
                                kPure,
                                Infer,
                                Reference};

}  // namespace dovetail
