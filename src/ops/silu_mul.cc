#include <cmath>

#include "ops/dispatch.h"
#include "ops/infer_util.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType &gate = c.operand(0), &up = c.operand(1);
  DT_RETURN_IF_ERROR(RequireFloat(gate, "silu_mul"));
  if (up.dtype != gate.dtype || !(up.shape == gate.shape)) return InvalidArgument("silu_mul of ", gate.ToString(), " and ", up.ToString());
  return SetResult(c, 0, gate.dtype, gate.shape);
}

Status Reference(const KernelContext& c) {
  return DispatchFloat(c.out().dtype, [&]<class T>() -> Status {
    for (int64_t i = 0; i < c.out().numel(); ++i) {
      const double gate = Load(c.in(0).as<T>()[i]), up = Load(c.in(1).as<T>()[i]);
      c.out().as<T>()[i] = Convert<T>(gate / (1 + std::exp(-gate)) * up);
    }
    return OkStatus();
  });
}

}  // namespace

// silu(gate) * up.
constinit const OpDef kOpSiluMul = {"silu_mul",
                                    "silu_mul(Tensor gate, Tensor up) -> Tensor",
                                    "",
                                    "dovetail::silu_mul.out",
                                    kFused,
                                    Infer,
                                    Reference};

}  // namespace dovetail
