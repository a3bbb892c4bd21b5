#include "ops/elementwise.h"
#include "ops/op_def.h"

namespace dovetail {
namespace {

Status Infer(const InferContext& c) {
  const TensorType& input = c.operand(0);
  DT_RETURN_IF_ERROR(RequireRank(input, 1, kMaxRank, "rope"));
  DT_RETURN_IF_ERROR(RequireFloat(input, "rope"));
  const Dim width = input.shape.back();
  if (!width.is_constant() || width.value() % 2 != 0)
    return InvalidArgument("rope of [", input.shape.ToString(), "]: the last dim must be a constant even number");
  for (size_t i = 1; i <= 2; ++i) {
    const TensorType& table = c.operand(i);
    const Result<Shape> shape = Broadcast(input.shape, table.shape);
    if (table.dtype != input.dtype || !shape.ok() || !(*shape == input.shape))
      return InvalidArgument("rope of ", input.ToString(), " with a ", i == 1 ? "cosine " : "sine ", table.ToString(), " that doesn't broadcast to it");
  }
  return SetResult(c, 0, input.dtype, input.shape);
}

Status Reference(const KernelContext& c) {
  const TensorView& out = c.out();
  const int64_t width = out.sizes[out.rank - 1], half = width / 2;
  return DispatchFloat(out.dtype, [&]<class T>() -> Status {
    const T *input = c.in(0).as<T>(), *cos = c.in(1).as<T>(), *sin = c.in(2).as<T>();
    ForEachBroadcast<2>(out, {c.in(1), c.in(2)}, [&](int64_t i, const std::array<int64_t, 2>& at) {
      const double x = Load(input[i]);
      const double rotated = i % width < half ? -static_cast<double>(Load(input[i + half])) : static_cast<double>(Load(input[i - half]));
      out.as<T>()[i] = Convert<T>(x * static_cast<double>(Load(cos[at[0]])) + rotated * static_cast<double>(Load(sin[at[1]])));
    });
    return OkStatus();
  });
}

}  // namespace

// input * cos + rotate_half(input) * sin, rotate_half(x) = cat(-x[.., D/2:], x[.., :D/2]).
constinit const OpDef kOpRope = {"rope",
                                 "rope(Tensor input, Tensor cos, Tensor sin) -> Tensor",
                                 "",
                                 "dovetail::rope.out",
                                 kFused,
                                 Infer,
                                 Reference};

}  // namespace dovetail
