#include "ops/dot.h"
#include "ops/infer_util.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {

// weight is [out, in], or [in] for a result without the last dim.
Status Infer(const InferContext& c) {
  const TensorType &input = c.operand(0), &weight = c.operand(1);
  DT_RETURN_IF_ERROR(RequireRank(input, 1, kMaxRank, "linear's input"));
  DT_RETURN_IF_ERROR(RequireRank(weight, 1, 2, "linear's weight"));
  if (input.dtype != weight.dtype || input.dtype == DType::kBool)
    return InvalidArgument("linear of ", Name(input.dtype), " with weights of ", Name(weight.dtype));
  if (input.shape.back() != weight.shape.back())
    return InvalidArgument("linear of [", input.shape.ToString(), "] with a weight [", weight.shape.ToString(), "]: the last dims differ");
  const Dim out = weight.rank() == 2 ? weight.shape[0] : Dim(1);
  if (c.has(2)) {
    const TensorType& bias = c.operand(2);
    if (bias.dtype != input.dtype) return InvalidArgument("linear of ", Name(input.dtype), " with a bias of ", Name(bias.dtype));
    if (bias.rank() > 1 || (bias.rank() == 1 && bias.shape[0] != out && bias.shape[0] != Dim(1)))
      return InvalidArgument("linear with ", out.ToString(), " results and a bias [", bias.shape.ToString(), "]");
  }
  Shape shape = input.shape;
  shape.erase(shape.rank() - 1);
  if (weight.rank() == 2) shape.push_back(out);
  return SetResult(c, 0, input.dtype, shape);
}

Status Reference(const KernelContext& c) {
  const TensorView &input = c.in(0), &weight = c.in(1);
  const int64_t in = weight.sizes[weight.rank - 1], out = weight.rank == 2 ? weight.sizes[0] : 1;
  return DispatchNumber(input.dtype, [&]<class T>() -> Status {
    for (int64_t i = 0; i < c.out().numel(); ++i) {
      SumOf<T> sum = Dot(input.as<T>() + i / out * in, 1, weight.as<T>() + i % out * in, 1, in);
      if (c.has(2)) sum += static_cast<SumOf<T>>(Load(c.in(2).as<T>()[i % c.in(2).numel()]));
      c.out().as<T>()[i] = Convert<T>(sum);
    }
    return OkStatus();
  });
}

}  // namespace

constinit const OpDef kOpLinear = {"linear",
                                   "linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
                                   "aten.linear.default",
                                   "aten::linear.out",
                                   kPure,
                                   Infer,
                                   Reference};

}  // namespace dovetail
