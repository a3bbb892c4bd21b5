#include <cmath>

#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {

Status Reference(const KernelContext& ctx) {
  return DispatchNumber(ctx.out().dtype, [&]<class T>() -> Status {
    return MapBinaryAs<T, T>(ctx, [](auto base, auto exponent) {
      if constexpr (std::is_integral_v<decltype(base)>) return IntegerPower(base, exponent);
      else return std::pow(base, exponent);
    });
  });
}

}  // namespace

constinit const OpDef kOpPowTensorTensor = {
    "pow_tensor", "pow_tensor(Tensor self, Tensor exponent) -> Tensor",
    "", "aten::pow.Tensor_Tensor_out",
    kElementwise, InferBinaryNoBool, Reference};

}  // namespace dovetail
