#include "ops/elementwise.h"
#include "ops/infer_util.h"
#include "ops/strided_copy.h"

namespace dovetail {
namespace {

// PyTorch skips tensors of shape [0], whatever the rank of the others.
bool IsSkipped(const Shape& s) { return s.rank() == 1 && s[0] == Dim(0); }

Status Infer(const InferContext& ctx) {
  if (ctx.operands.empty()) return InvalidArgument("cat: no tensors to join");
  DType dtype = DType::kNone;
  const TensorType* first = nullptr;
  for (const TensorType& t : ctx.operands) {
    if (t.rank() == 0) return InvalidArgument("cat: a tensor of rank 0 cannot be joined");
    dtype = Promote(dtype, t.dtype);
    if (!first && !IsSkipped(t.shape)) first = &t;
  }
  if (!first) return SetResult(ctx, 0, dtype, ctx.operand(0).shape);
  DT_ASSIGN_OR_RETURN(const size_t axis, NormalizeAxis(ctx.attr(0).Int(), first->rank()));
  Shape shape = first->shape;
  shape[axis] = 0;
  bool same_quant = true;
  for (const TensorType& t : ctx.operands) {
    if (IsSkipped(t.shape)) continue;
    bool fits = t.rank() == shape.rank();
    for (size_t d = 0; fits && d < shape.rank(); ++d) fits = d == axis || t.shape[d] == shape[d];
    if (!fits)
      return InvalidArgument("cat: [", t.shape.ToString(), "] and [", first->shape.ToString(), "] differ not only in dimension ", axis);
    shape[axis] = shape[axis] + t.shape[axis];
    same_quant = same_quant && t.quant == first->quant;
  }
  ctx.results[0] = TensorType(dtype, shape);
  if (same_quant && first->quant.kind == QuantParams::Kind::kPerTensor) ctx.results[0].quant = first->quant;
  return OkStatus();
}

Status Reference(const KernelContext& ctx) {
  const TensorView& out = ctx.out();
  DT_ASSIGN_OR_RETURN(const size_t axis, NormalizeAxis(ctx.attr(0).Int(), out.rank));
  const int64_t row = out.stride(axis), out_row = out.sizes[axis] * row;
  int64_t offset = 0;
  for (const TensorView& in : ctx.inputs) {
    if (in.numel() == 0) continue;
    if (in.dtype == out.dtype) {
      StridedCopy copy = StridedCopy::Between(out, in, in);
      copy.to_offset = offset;
      copy.Run(out.data, in.data, ByteSize(out.dtype));
    } else {
      const int64_t in_row = in.sizes[axis] * row, n = in.numel();
      DT_RETURN_IF_ERROR(DispatchConvertible(out.dtype, [&]<class T>() {
        const Reader<T> from(in);
        for (int64_t i = 0; i < n; ++i) out.as<T>()[i / in_row * out_row + offset + i % in_row] = Convert<T>(from[i]);
        return OkStatus();
      }));
    }
    offset += in.sizes[axis] * row;
  }
  return OkStatus();
}

}  // namespace

constinit const OpDef kOpCat = {"cat",
                                "cat(Tensor[] tensors, int dim=0) -> Tensor",
                                "aten.cat.default aten.concat.default aten.concatenate.default",
                                "aten::cat.out",
                                kDataMovement,
                                Infer,
                                Reference};

}  // namespace dovetail
