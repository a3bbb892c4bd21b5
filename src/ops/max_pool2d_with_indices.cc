#include <algorithm>

#include "ops/dispatch.h"
#include "ops/op_def.h"
#include "ops/window.h"

namespace dovetail {
namespace {

enum { kKernelSize, kStride, kPadding, kDilation, kCeilMode };

Result<Window> ReadWindow(std::span<const Attr> attrs) {
  Window window;
  for (size_t i = 0; i < 2; ++i) {
    WindowDim& w = window[i];
    DT_ASSIGN_OR_RETURN(w.kernel, WindowArg(attrs[kKernelSize], i, 2, 0, 1, "max_pool2d's kernel_size"));
    DT_ASSIGN_OR_RETURN(w.stride, WindowArg(attrs[kStride], i, 2, w.kernel, 1, "max_pool2d's stride"));
    DT_ASSIGN_OR_RETURN(w.padding, WindowArg(attrs[kPadding], i, 2, 0, 0, "max_pool2d's padding"));
    DT_ASSIGN_OR_RETURN(w.dilation, WindowArg(attrs[kDilation], i, 2, 1, 1, "max_pool2d's dilation"));
    if (w.kernel < 1) return InvalidArgument("max_pool2d without a kernel_size");
    if (w.padding > w.extent() / 2) return InvalidArgument("max_pool2d's padding ", w.padding, " is more than half of the window of ", w.extent());
  }
  return window;
}

Status Infer(const InferContext& c) {
  const TensorType& self = c.operand(0);
  DT_RETURN_IF_ERROR(RequireRank(self, 3, 4, "max_pool2d"));
  if (self.dtype == DType::kBool) return InvalidArgument("max_pool2d of bool");
  DT_ASSIGN_OR_RETURN(const Window w, ReadWindow(c.attrs));
  Shape shape = self.shape;
  for (size_t i = 0; i < 2; ++i) {
    const size_t dim = self.rank() - 2 + i;
    DT_ASSIGN_OR_RETURN(shape[dim], SlideWindow(self.shape[dim], w[i], c.attr(kCeilMode).Bool(), "max_pool2d"));
  }
  DT_RETURN_IF_ERROR(SetResult(c, 1, DType::kI64, shape));
  return SetMovedResult(c, shape);
}

Status Reference(const KernelContext& c) {
  DT_ASSIGN_OR_RETURN(const Window w, ReadWindow(c.attrs));
  const TensorView &self = c.in(0), &out = c.out();
  const int64_t in_h = self.sizes[self.rank - 2], in_w = self.sizes[self.rank - 1];
  const int64_t out_h = out.sizes[out.rank - 2], out_w = out.sizes[out.rank - 1];
  return DispatchNumber(self.dtype, [&]<class T>() -> Status {
    for (int64_t i = 0; i < out.numel(); ++i) {
      const T* plane = self.as<T>() + i / (out_h * out_w) * in_h * in_w;
      const int64_t y0 = i / out_w % out_h * w[0].stride - w[0].padding, x0 = i % out_w * w[1].stride - w[1].padding;
      int64_t best = -1;
      for (int64_t ky = 0; ky < w[0].kernel; ++ky)
        for (int64_t kx = 0; kx < w[1].kernel; ++kx) {
          const int64_t y = y0 + ky * w[0].dilation, x = x0 + kx * w[1].dilation;
          if (y < 0 || y >= in_h || x < 0 || x >= in_w) continue;
          const auto v = Load(plane[y * in_w + x]);
          // The first of equal ones, and the last NaN.
          if (best < 0 || v > Load(plane[best]) || v != v) best = y * in_w + x;
        }
      if (best < 0) return InvalidArgument("max_pool2d: a dilated window meets no element of a plane of [", in_h, ",", in_w, "]");
      out.as<T>()[i] = plane[best];
      c.out(1).as<int64_t>()[i] = best;
    }
    return OkStatus();
  });
}

}  // namespace

constinit const OpDef kOpMaxPool2dWithIndices = {
    "max_pool2d_with_indices",
    "max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) "
    "-> (Tensor out, Tensor indices)",
    "aten.max_pool2d_with_indices.default",
    "aten::max_pool2d_with_indices.out",
    kPure,
    Infer,
    Reference};

}  // namespace dovetail
