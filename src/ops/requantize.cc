#include "ops/dispatch.h"
#include "ops/infer_util.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  if (c.operand(0).dtype != DType::kF32) return InvalidArgument("requantize takes f32 or integers that stand for it, not ", Name(c.operand(0).dtype));
  return SetResult(c, 0, DType::kF32, c.operand(0).shape);
}

Status Reference(const KernelContext& c) {
  CopyBytes(c.out().data, c.in(0).data, c.out().nbytes());
  return OkStatus();
}

}  // namespace

// The same real numbers: with per_tensor operand and result, from one form in integers to another.
constinit const OpDef kOpRequantize = {"requantize", "requantize(Tensor input) -> Tensor", "", "dovetail::requantize.out", kPure, Infer, Reference};

}  // namespace dovetail
