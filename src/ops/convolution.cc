#include "ops/dot.h"
#include "ops/op_def.h"
#include "ops/window.h"

namespace dovetail {
namespace {

enum { kStride, kPadding, kDilation, kTransposed, kOutputPadding, kGroups };

Result<WindowDim> ReadWindow(std::span<const Attr> attrs, size_t i, size_t spatial, int64_t kernel) {
  WindowDim w;
  w.kernel = kernel;
  DT_ASSIGN_OR_RETURN(w.stride, WindowArg(attrs[kStride], i, spatial, 1, 1, "convolution's stride"));
  DT_ASSIGN_OR_RETURN(w.padding, WindowArg(attrs[kPadding], i, spatial, 0, 0, "convolution's padding"));
  DT_ASSIGN_OR_RETURN(w.dilation, WindowArg(attrs[kDilation], i, spatial, 1, 1, "convolution's dilation"));
  return w;
}

// weight is [out, in/groups, ...]; transposed: [in, out/groups, ...].
Status Infer(const InferContext& c) {
  const TensorType &input = c.operand(0), &weight = c.operand(1);
  DT_RETURN_IF_ERROR(RequireRank(input, 3, 4, "convolution"));
  DT_RETURN_IF_ERROR(RequireRank(weight, input.rank(), input.rank(), "convolution's weight"));
  if (input.dtype != weight.dtype || input.dtype == DType::kBool)
    return InvalidArgument("convolution of ", Name(input.dtype), " with weights of ", Name(weight.dtype));
  for (Dim d : weight.shape)
    if (!d.is_constant()) return Unsupported("convolution with a weight of symbolic shape [", weight.shape.ToString(), "]");
  const int64_t groups = c.attr(kGroups).Int(1);
  const bool transposed = c.attr(kTransposed).Bool();
  const Dim own = weight.shape[0], per_group = weight.shape[1] * Dim(groups);
  if (groups < 1 || own.value() % groups != 0)
    return InvalidArgument("convolution with ", groups, " groups and a weight [", weight.shape.ToString(), "]");
  if (input.shape[1] != (transposed ? own : per_group))
    return InvalidArgument("convolution of [", input.shape.ToString(), "] with a weight [", weight.shape.ToString(), "] and ", groups,
                           " groups: the input must have ", (transposed ? own : per_group).value(), " channels");
  const Dim channels = transposed ? per_group : own;
  if (c.has(2) && (c.operand(2).dtype != input.dtype || !(c.operand(2).shape == Shape{channels})))
    return InvalidArgument("convolution with ", channels.ToString(), " output channels and a bias ", c.operand(2).ToString());
  Shape shape{input.shape[0], channels};
  const size_t spatial = input.rank() - 2;
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t kernel = weight.shape[2 + i].value();
    if (kernel < 1 || kernel > INT32_MAX) return InvalidArgument("convolution with a kernel of size ", kernel);
    DT_ASSIGN_OR_RETURN(const WindowDim w, ReadWindow(c.attrs, i, spatial, kernel));
    DT_ASSIGN_OR_RETURN(const int64_t extra, WindowArg(c.attr(kOutputPadding), i, spatial, 0, 0, "convolution's output_padding"));
    if (transposed && extra >= w.stride && extra >= w.dilation)
      return InvalidArgument("convolution's output_padding ", extra, " must be less than stride or dilation");
    DT_ASSIGN_OR_RETURN(const Dim size, transposed ? SpreadWindow(input.shape[2 + i], w, extra, "convolution")
                                                   : SlideWindow(input.shape[2 + i], w, false, "convolution"));
    shape.push_back(size);
  }
  return SetResult(c, 0, input.dtype, shape);
}

// Where in the input the kernel's element k meets the result's element `at`, or -1.
int64_t Meets(const WindowDim& w, bool transposed, int64_t at, int64_t k, int64_t size) {
  int64_t from = transposed ? at + w.padding - k * w.dilation : at * w.stride - w.padding + k * w.dilation;
  if (transposed) {
    if (from % w.stride != 0) return -1;
    from /= w.stride;
  }
  return from >= 0 && from < size ? from : -1;
}

template <class T>
Status Run(const KernelContext& c, const Window& w) {
  const TensorView &input = c.in(0), &weight = c.in(1), &out = c.out();
  const bool transposed = c.attr(kTransposed).Bool();
  const int64_t groups = c.attr(kGroups).Int(1);
  const int64_t in_group = input.sizes[1] / groups, out_group = out.sizes[1] / groups;
  const bool two = input.rank == 4;
  const int64_t in_h = two ? input.sizes[2] : 1, in_w = input.sizes[input.rank - 1];
  const int64_t out_h = two ? out.sizes[2] : 1, out_w = out.sizes[out.rank - 1];
  const int64_t taps = w[0].kernel * w[1].kernel;
  T* to = out.as<T>();
  for (int64_t n = 0; n < out.sizes[0]; ++n)
    for (int64_t o = 0; o < out.sizes[1]; ++o)
      for (int64_t y = 0; y < out_h; ++y)
        for (int64_t x = 0; x < out_w; ++x) {
          SumOf<T> sum = c.has(2) ? static_cast<SumOf<T>>(Load(c.in(2).as<T>()[o])) : 0;
          const int64_t first = o / out_group * in_group;
          for (int64_t ky = 0; ky < w[0].kernel; ++ky)
            for (int64_t kx = 0; kx < w[1].kernel; ++kx) {
              const int64_t iy = Meets(w[0], transposed, y, ky, in_h), ix = Meets(w[1], transposed, x, kx, in_w);
              if (iy < 0 || ix < 0) continue;
              const T* from = input.as<T>() + ((n * input.sizes[1] + first) * in_h + iy) * in_w + ix;
              const T* tap = weight.as<T>() + ky * w[1].kernel + kx;
              if (transposed) sum = Dot(from, in_h * in_w, tap + (first * out_group + o % out_group) * taps, out_group * taps, in_group, sum);
              else sum = Dot(from, in_h * in_w, tap + o * in_group * taps, taps, in_group, sum);
            }
          *to++ = Convert<T>(sum);
        }
  return OkStatus();
}

Status Reference(const KernelContext& c) {
  const size_t spatial = c.in(0).rank - 2u;
  Window w;
  for (size_t i = 0; i < spatial; ++i) {
    DT_ASSIGN_OR_RETURN(w[2 - spatial + i], ReadWindow(c.attrs, i, spatial, c.in(1).sizes[2 + i]));
  }
  return DispatchNumber(c.out().dtype, [&]<class T>() -> Status { return Run<T>(c, w); });
}

}  // namespace

constinit const OpDef kOpConvolution = {
    "convolution",
    "convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, "
    "SymInt[] output_padding, SymInt groups) -> Tensor",
    "aten.convolution.default",
    "aten::convolution.out",
    kPure,
    Infer,
    Reference};

}  // namespace dovetail
