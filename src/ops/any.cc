#include "ops/dispatch.h"
#include "ops/op_def.h"
#include "ops/reduce.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType& self = c.operand(0);
  DT_ASSIGN_OR_RETURN(const uint32_t reduced, ReducedDims(c.attr(0), self.rank()));
  // PyTorch keeps u8, its bool of old.
  const DType dtype = self.dtype == DType::kU8 ? DType::kU8 : DType::kBool;
  return SetResult(c, 0, dtype, ReducedShape(self.shape, reduced, c.attr(1).Bool()));
}

Status Reference(const KernelContext& c) {
  const Reduction reduction(c.in(0), c.attr(0));
  const Reader<BoolElement> in(c.in(0));
  for (int64_t i = 0; i < reduction.results(); ++i) {
    bool any = false;
    for (int64_t k = 0; k < reduction.count(); ++k) any = any || in[reduction.Offset(i, k)];
    c.out().as<uint8_t>()[i] = any;
  }
  return OkStatus();
}

}  // namespace

constinit const OpDef kOpAny = {"any",
                                "any(Tensor self, int dim, bool keepdim=False) -> Tensor",
                                "aten.any.dim",
                                "aten::any.out",
                                kPure,
                                Infer,
                                Reference};

}  // namespace dovetail
