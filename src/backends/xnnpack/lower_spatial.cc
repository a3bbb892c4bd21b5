#include <algorithm>

#include "backends/xnnpack/lowering.h"
#include "ops/window.h"

namespace dovetail::xnnpack {
namespace {

// The filter as XNNPACK has it: [out, kh, kw, in/groups]; depthwise [1, kh, kw, out]. The source is [out, in/groups, kh, kw], or of a
// transposed convolution [in, out/groups, kh, kw].
std::vector<float> TurnFilter(const Constant& c, int64_t groups, bool transposed, bool depthwise, int64_t kh, int64_t kw) {
  std::vector<float> from(static_cast<size_t>(c.type.shape.numel().value())), to(from.size());
  c.CopyTo(reinterpret_cast<std::byte*>(from.data()));
  const int64_t first = c.type.shape[0].value(), second = c.type.shape[1].value(), taps = kh * kw;
  const int64_t out = transposed ? second * groups : first, in_group = transposed ? first / groups : second, out_group = out / groups;
  for (int64_t o = 0; o < out; ++o)
    for (int64_t i = 0; i < in_group; ++i)
      for (int64_t t = 0; t < taps; ++t) {
        const int64_t source =
            transposed ? ((o / out_group * in_group + i) * out_group + o % out_group) * taps + t : (o * in_group + i) * taps + t;
        const int64_t target = depthwise ? t * out + o : (o * taps + t) * in_group + i;
        to[static_cast<size_t>(target)] = from[static_cast<size_t>(source)];
      }
  return to;
}

// Window arguments of one or two spatial dims as two; a failure is recorded.
Window ReadWindow(Lowering& l, const Node& n, size_t spatial, const std::array<int64_t, 2>& kernel, bool has_dilation) {
  Window w;
  for (size_t i = 0; i < spatial; ++i) {
    WindowDim& d = w[2 - spatial + i];
    d.kernel = kernel[i];
    const auto read = [&](std::string_view name, int64_t fallback, int64_t min) {
      const Result<int64_t> v = WindowArg(GetAttr(n, name), i, spatial, fallback, min, name);
      if (!v.ok()) l.Fail(std::string(v.status().message()));
      return v.ok() ? *v : fallback;
    };
    d.stride = read("stride", n.op == OpId::kConvolution ? 1 : d.kernel, 1);
    d.padding = read("padding", 0, 0);
    if (has_dilation) d.dilation = read("dilation", 1, 1);
  }
  return w;
}

void Convolution(Lowering& l, const Node& n) {
  const ValueId input = GetOperand(n, "input"), bias = GetOperand(n, "bias");
  const Constant* weight = l.F32Constant(GetOperand(n, "weight"));
  if (!weight) return l.Fail("a convolution whose weight is not an f32 constant");
  const Constant* b = l.F32Constant(bias);
  if (bias != kNone && !b) return l.Fail("a convolution whose bias is not an f32 constant");
  const size_t rank = weight->type.rank(), spatial = rank - 2;
  const Shape& ws = weight->type.shape;
  const int64_t kh = spatial == 2 ? ws[2].value() : 1, kw = ws[rank - 1].value();
  const Window w = ReadWindow(l, n, spatial, spatial == 2 ? std::array<int64_t, 2>{kh, kw} : std::array<int64_t, 2>{kw, 1}, true);
  const int64_t groups = GetAttr(n, "groups").Int(1);
  const bool transposed = GetAttr(n, "transposed").Bool();
  const int64_t out = transposed ? ws[1].value() * groups : ws[0].value(), in_group = transposed ? ws[0].value() / groups : ws[1].value();
  const bool depthwise = !transposed && groups > 1 && in_group == 1;
  int64_t extra[2] = {0, 0};
  for (size_t i = 0; transposed && i < spatial; ++i) {
    const Result<int64_t> v = WindowArg(GetAttr(n, "output_padding"), i, spatial, 0, 0, "output_padding");
    if (!v.ok()) return l.Fail(std::string(v.status().message()));
    extra[2 - spatial + i] = *v;
  }

  const Shape filter_shape = depthwise ? Shape{Dim(1), Dim(kh), Dim(kw), Dim(out)} : Shape{Dim(out), Dim(kh), Dim(kw), Dim(in_group)};
  const std::string key = StrCat(weight->name, depthwise ? ".xnnpack_dw" : transposed ? ".xnnpack_t" : ".xnnpack", groups);
  const Id filter = l.Weight(key, filter_shape, [&] {
    if (!weight->data_known) l.Fail(StrCat("the data of constant '", weight->name, "' are not known"));
    return weight->data_known ? TurnFilter(*weight, groups, transposed, depthwise, kh, kw) : std::vector<float>();
  });
  Id x = l.Operand(input, Order::kChannelsLast);
  const Shape result = l.type(n.results[0]).shape;
  if (spatial == 1) x = l.Reshape(x, Shape{l.shape(x)[0], Dim(1), l.shape(x)[1], l.shape(x)[2]});
  const Shape to = {result[0], spatial == 2 ? result[2] : Dim(1), result[rank - 1], Dim(out)};
  XnnNode node(depthwise    ? Kind::XNNDepthwiseConv2d
               : transposed ? Kind::XNNConvTranspose2d
                            : Kind::XNNConv2d,
               {x, filter, b ? l.Weight(*b) : kNoId});
  for (int64_t v : {w[0].padding, w[1].padding, w[0].padding, w[1].padding, kh, kw, w[0].stride, w[1].stride, w[0].dilation, w[1].dilation,
                    in_group, out / groups, groups, extra[0], extra[1]})
    node.a.push_back(static_cast<uint32_t>(v));
  Id y = l.Emit(std::move(node), to);
  if (spatial == 1) y = l.Reshape(y, Shape{to[0], to[2], to[3]});
  l.Bind(n.results[0], y, Order::kChannelsLast);
}

// What must be added at the far end of a dim so that whole windows give as many results as ceil_mode does.
uint32_t FarPadding(Lowering& l, Dim size, Dim result, const WindowDim& w) {
  if (!size.is_constant() || !result.is_constant()) {
    l.Fail("a pooling with ceil_mode over a symbolic size");
    return 0;
  }
  return static_cast<uint32_t>(std::max<int64_t>(0, (result.value() - 1) * w.stride + w.extent() - size.value() - 2 * w.padding));
}

XnnNode PoolNode(Kind kind, Id x, const Window& w, const std::array<uint32_t, 4>& padding) {
  XnnNode node(kind, {x});
  node.a.assign(padding.begin(), padding.end());
  for (int64_t v : {w[0].kernel, w[1].kernel, w[0].stride, w[1].stride, w[0].dilation, w[1].dilation})
    node.a.push_back(static_cast<uint32_t>(v));
  return node;
}

void Pool(Lowering& l, const Node& n) {
  const bool max = n.op == OpId::kMaxPool2dWithIndices;
  if (l.type(n.operands[0]).rank() != 4) return l.Fail("a pooling of a tensor that has not 4 dims");
  if (max && l.graph().CountUses()[n.results[1]] != 0) return l.Fail("a pooling whose indices are used");
  const Attr& kernel = GetAttr(n, "kernel_size");
  const Window w = ReadWindow(l, n, 2, {kernel.IntAt(0), kernel.IntAt(1)}, max);
  if (w[0].kernel < 1 || w[1].kernel < 1 || w[0].kernel * w[1].kernel == 1) return l.Fail("a pooling over single elements");
  const Shape from = l.type(n.operands[0]).shape, to = l.type(n.results[0]).shape;
  const uint32_t ph = static_cast<uint32_t>(w[0].padding), pw = static_cast<uint32_t>(w[1].padding);
  std::array<uint32_t, 4> padding = {ph, pw, ph, pw};  // top, right, bottom, left
  if (GetAttr(n, "ceil_mode").Bool()) {
    const uint32_t h = FarPadding(l, from[2], to[2], w[0]), v = FarPadding(l, from[3], to[3], w[1]);
    if (!max && h + v > 0) return l.Fail("an average with ceil_mode whose last window is not whole");
    padding[2] += h;
    padding[1] += v;
  }
  Id x = l.Operand(n.operands[0], Order::kChannelsLast);
  if (!max && !GetAttr(n, "divisor_override").is_none()) return l.Fail("an average pooling with divisor_override");
  if (!max && ph + pw > 0 && GetAttr(n, "count_include_pad").Bool()) {
    // XNNPACK's average leaves padding out, so the zeros become real.
    x = l.Pad(x, {0, ph, pw, 0}, {0, ph, pw, 0}, 0);
    padding = {};
  }
  const Id y = l.Emit(PoolNode(max ? Kind::XNNMaxPooling2d : Kind::XNNAvgPooling2d, x, w, padding), Shape{to[0], to[2], to[3], to[1]});
  l.Bind(n.results[0], y, Order::kChannelsLast);
}

}  // namespace

LowerFn FindSpatial(OpId op) {
  switch (op) {
    case OpId::kConvolution: return Convolution;
    case OpId::kMaxPool2dWithIndices:
    case OpId::kAvgPool2d: return Pool;
    default: return nullptr;
  }
}

}  // namespace dovetail::xnnpack
