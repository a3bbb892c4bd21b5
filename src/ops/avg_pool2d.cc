#include <algorithm>

#include "ops/dispatch.h"
#include "ops/op_def.h"
#include "ops/window.h"

namespace dovetail {
namespace {

enum { kKernelSize, kStride, kPadding, kCeilMode, kCountIncludePad, kDivisorOverride };

Result<Window> ReadWindow(std::span<const Attr> attrs) {
  Window window;
  for (size_t i = 0; i < 2; ++i) {
    WindowDim& w = window[i];
    DT_ASSIGN_OR_RETURN(w.kernel, WindowArg(attrs[kKernelSize], i, 2, 0, 1, "avg_pool2d's kernel_size"));
    DT_ASSIGN_OR_RETURN(w.stride, WindowArg(attrs[kStride], i, 2, w.kernel, 1, "avg_pool2d's stride"));
    DT_ASSIGN_OR_RETURN(w.padding, WindowArg(attrs[kPadding], i, 2, 0, 0, "avg_pool2d's padding"));
    if (w.kernel < 1) return InvalidArgument("avg_pool2d without a kernel_size");
    if (w.padding > w.kernel / 2) return InvalidArgument("avg_pool2d's padding ", w.padding, " is more than half of the window of ", w.kernel);
  }
  return window;
}

Status Infer(const InferContext& c) {
  const TensorType& self = c.operand(0);
  DT_RETURN_IF_ERROR(RequireRank(self, 3, 4, "avg_pool2d"));
  DT_RETURN_IF_ERROR(RequireFloat(self, "avg_pool2d"));
  if (c.attr(kDivisorOverride).Int(1) == 0) return InvalidArgument("avg_pool2d's divisor_override is 0");
  DT_ASSIGN_OR_RETURN(const Window w, ReadWindow(c.attrs));
  Shape shape = self.shape;
  for (size_t i = 0; i < 2; ++i) {
    const size_t dim = self.rank() - 2 + i;
    DT_ASSIGN_OR_RETURN(shape[dim], SlideWindow(self.shape[dim], w[i], c.attr(kCeilMode).Bool(), "avg_pool2d"));
  }
  return SetResult(c, 0, self.dtype, shape);
}

// The window's positions inside the input, and how many it has including the padding (but not past it).
struct Span {
  int64_t begin, end, padded;
};
Span At(const WindowDim& w, int64_t at, int64_t size) {
  const int64_t begin = at * w.stride - w.padding, end = std::min(begin + w.kernel, size + w.padding);
  return {std::max<int64_t>(begin, 0), std::min(end, size), end - begin};
}

Status Reference(const KernelContext& c) {
  DT_ASSIGN_OR_RETURN(const Window w, ReadWindow(c.attrs));
  const TensorView &self = c.in(0), &out = c.out();
  const int64_t in_h = self.sizes[self.rank - 2], in_w = self.sizes[self.rank - 1];
  const int64_t out_h = out.sizes[out.rank - 2], out_w = out.sizes[out.rank - 1];
  return DispatchFloat(self.dtype, [&]<class T>() -> Status {
    for (int64_t i = 0; i < out.numel(); ++i) {
      const T* plane = self.as<T>() + i / (out_h * out_w) * in_h * in_w;
      const Span y = At(w[0], i / out_w % out_h, in_h), x = At(w[1], i % out_w, in_w);
      double sum = 0;
      for (int64_t r = y.begin; r < y.end; ++r)
        for (int64_t k = x.begin; k < x.end; ++k) sum += Load(plane[r * in_w + k]);
      const int64_t inside = std::max<int64_t>(y.end - y.begin, 0) * std::max<int64_t>(x.end - x.begin, 0);
      const int64_t divisor = c.attr(kDivisorOverride).Int(c.attr(kCountIncludePad).Bool(true) ? y.padded * x.padded : inside);
      out.as<T>()[i] = Convert<T>(inside == 0 ? 0.0 : sum / static_cast<double>(divisor));
    }
    return OkStatus();
  });
}

}  // namespace

constinit const OpDef kOpAvgPool2d = {
    "avg_pool2d",
    "avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, "
    "int? divisor_override=None) -> Tensor",
    "aten.avg_pool2d.default",
    "aten::avg_pool2d.out",
    kPure,
    Infer,
    Reference};

}  // namespace dovetail
