#include "ops/dispatch.h"
#include "ops/op_def.h"
#include "ops/reduce.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType& self = c.operand(0);
  DT_ASSIGN_OR_RETURN(const uint32_t reduced, ReducedDims(c.attr(0), self.rank()));
  for (size_t i = 0; i < self.rank(); ++i)
    if ((reduced >> i & 1) && self.shape[i] == Dim(0)) return InvalidArgument("amax over dimension ", i, " of size 0 has no result");
  return SetResult(c, 0, self.dtype, ReducedShape(self.shape, reduced, c.attr(1).Bool()));
}

Status Reference(const KernelContext& c) {
  const Reduction reduction(c.in(0), c.attr(0));
  return DispatchElement(c.out().dtype, [&]<class T>() -> Status {
    const Reader<T> in(c.in(0));
    for (int64_t i = 0; i < reduction.results(); ++i) {
      ComputeOf<T> most = in[reduction.Offset(i, 0)];
      for (int64_t k = 1; k < reduction.count(); ++k) {
        const ComputeOf<T> v = in[reduction.Offset(i, k)];
        // A NaN stays, whenever it comes.
        if (v > most || v != v) most = v;
      }
      c.out().as<T>()[i] = Convert<T>(most);
    }
    return OkStatus();
  });
}

}  // namespace

constinit const OpDef kOpAmax = {"amax",
                                 "amax(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor",
                                 "aten.amax.default",
                                 "aten::amax.out",
                                 kPure,
                                 Infer,
                                 Reference};

}  // namespace dovetail
