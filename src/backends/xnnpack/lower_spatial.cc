#include <algorithm>

#include "backends/xnnpack/lowering.h"
#include "ops/window.h"

namespace dovetail::xnnpack {
namespace {

// How a convolution's weight stands in the exported graph and in XNNPACK.
struct Filter {
  int64_t groups = 1, out = 0, in_group = 0, kh = 1, kw = 1;
  bool transposed = false, depthwise = false;

  Shape shape() const { return depthwise ? Shape{Dim(1), Dim(kh), Dim(kw), Dim(out)} : Shape{Dim(out), Dim(kh), Dim(kw), Dim(in_group)}; }
  std::string suffix() const { return StrCat(depthwise ? ".xnnpack_dw" : transposed ? ".xnnpack_t" : ".xnnpack", groups); }
};

// The filter as XNNPACK has it: [out, kh, kw, in/groups]; depthwise [1, kh, kw, out]. The source is [out, in/groups, kh, kw], or of a
// transposed convolution [in, out/groups, kh, kw].
template <class T>
std::vector<T> Turn(const std::vector<T>& from, const Filter& f) {
  std::vector<T> to(from.size());
  const int64_t taps = f.kh * f.kw, out_group = f.out / f.groups;
  for (int64_t o = 0; o < f.out; ++o)
    for (int64_t i = 0; i < f.in_group; ++i)
      for (int64_t t = 0; t < taps; ++t) {
        const int64_t source =
            f.transposed ? ((o / out_group * f.in_group + i) * out_group + o % out_group) * taps + t : (o * f.in_group + i) * taps + t;
        const int64_t target = f.depthwise ? t * f.out + o : (o * taps + t) * f.in_group + i;
        to[static_cast<size_t>(target)] = from[static_cast<size_t>(source)];
      }
  return to;
}

// A convolution but for its operands' data.
struct Convolved {
  Filter filter;
  Window window;
  int64_t extra[2] = {0, 0};  // output_padding
  size_t spatial = 0;
};

Convolved ReadConvolution(Lowering& l, const Node& n, const Shape& weight) {
  Convolved c;
  Filter& f = c.filter;
  const size_t rank = weight.rank();
  c.spatial = rank - 2;
  f.kh = c.spatial == 2 ? weight[2].value() : 1;
  f.kw = weight[rank - 1].value();
  const int64_t kernel[] = {f.kh, f.kw};
  const Result<Window> w = ReadWindow(std::span(kernel).last(c.spatial), GetAttr(n, "stride"), GetAttr(n, "padding"), &GetAttr(n, "dilation"), 1);
  if (w.ok()) c.window = *w;
  else l.Fail(std::string(w.status().message()));
  f.groups = GetAttr(n, "groups").Int(1);
  f.transposed = GetAttr(n, "transposed").Bool();
  f.out = f.transposed ? weight[1].value() * f.groups : weight[0].value();
  f.in_group = f.transposed ? weight[0].value() / f.groups : weight[1].value();
  f.depthwise = !f.transposed && f.groups > 1 && f.in_group == 1;
  for (size_t i = 0; f.transposed && i < c.spatial; ++i) {
    const Result<int64_t> v = WindowArg(GetAttr(n, "output_padding"), i, c.spatial, 0, 0, "output_padding");
    if (!v.ok()) l.Fail(std::string(v.status().message()));
    c.extra[2 - c.spatial + i] = v.ok() ? *v : 0;
  }
  return c;
}

void EmitConvolution(Lowering& l, const Node& n, const Convolved& c, Id filter, Id bias) {
  const Filter& f = c.filter;
  const Window& w = c.window;
  Id x = l.Operand(GetOperand(n, "input"), Order::kChannelsLast);
  const Shape result = l.type(n.results[0]).shape;
  // What quantize_dynamic made has four dims already.
  if (l.shape(x).rank() == 3) x = l.Reshape(x, Shape{l.shape(x)[0], Dim(1), l.shape(x)[1], l.shape(x)[2]});
  const Shape to = {result[0], c.spatial == 2 ? result[2] : Dim(1), result[result.rank() - 1], Dim(f.out)};
  XnnNode node(f.depthwise    ? Kind::XNNDepthwiseConv2d
               : f.transposed ? Kind::XNNConvTranspose2d
                              : Kind::XNNConv2d,
               {x, filter, bias});
  for (int64_t v : {w[0].padding, w[1].padding, w[0].padding, w[1].padding, f.kh, f.kw, w[0].stride, w[1].stride, w[0].dilation,
                    w[1].dilation, f.in_group, f.out / f.groups, f.groups, c.extra[0], c.extra[1]})
    node.a.push_back(static_cast<uint32_t>(v));
  const bool integers = l.xnn_type(x).params == xn::XNNQuantParams::PerTensorQuant;
  Id y = l.Emit(std::move(node), to, integers ? l.TypeOf(n.results[0]) : XnnType());
  if (c.spatial == 1) y = l.Reshape(y, Shape{to[0], to[2], to[3]});
  l.Bind(n.results[0], y, Order::kChannelsLast);
}

void Convolution(Lowering& l, const Node& n) {
  const ValueId bias = GetOperand(n, "bias");
  const Constant* weight = l.F32Constant(GetOperand(n, "weight"));
  if (!weight) return l.Fail("a convolution whose weight is not an f32 constant");
  const Constant* b = l.F32Constant(bias);
  if (bias != kNone && !b) return l.Fail("a convolution whose bias is not an f32 constant");
  const Convolved c = ReadConvolution(l, n, weight->type.shape);
  const Id filter = l.Weight(weight->name + c.filter.suffix(), c.filter.shape(), [&] { return Turn(l.FloatsOf(*weight), c.filter); });
  EmitConvolution(l, n, c, filter, b ? l.Weight(*b) : kNoId);
}

// The turned filter in f32.
std::vector<float> Dequantized(const std::vector<std::byte>& integers, const std::vector<float>& scales, const Filter& f) {
  std::vector<float> real(integers.size());
  const size_t out = scales.size(), each = real.size() / out;
  for (size_t i = 0; i < real.size(); ++i) real[i] = static_cast<float>(static_cast<int8_t>(integers[i])) * scales[f.depthwise ? i % out : i / each];
  return real;
}

void QuantizedConvolution(Lowering& l, const Node& n) {
  const Constant* weight = GetConstant(l.module(), l.graph(), GetOperand(n, "weight"));
  const Constant* scale = GetConstant(l.module(), l.graph(), GetOperand(n, "weight_scale"));
  const ValueId bias = GetOperand(n, "bias"), input = GetOperand(n, "input");
  const Constant* b = l.F32Constant(bias);
  if (!weight || !scale || (bias != kNone && !b)) return l.Fail("a quantized convolution whose weight, scales and bias are not constants");
  const bool rows = GetOperand(n, "input_scale") != kNone;
  if (!rows && !l.type(input).per_tensor()) return l.Fail("a convolution of f32 with int8 weights; its input must be quantized too");
  Convolved c = ReadConvolution(l, n, weight->type.shape);
  Filter& f = c.filter;
  if (!rows && l.in_f32()) {
    // No integers for its scales: the filter is stored in f32.
    const auto make = [&] { return Dequantized(Turn(l.DataOf(*weight), f), l.FloatsOf(*scale), f); };
    return EmitConvolution(l, n, c, l.Weight(StrCat(weight->name, f.suffix(), "_f32"), f.shape(), make), b ? l.Weight(*b) : kNoId);
  }
  // There is no depthwise convolution of rows, so it is one of as many groups.
  if (rows) f.depthwise = false;
  const Id filter = l.QuantizedWeight(*weight, *scale, f.shape(), f.depthwise ? 3 : 0, f.suffix(), [&] { return Turn(l.DataOf(*weight), f); });
  if (!rows) return EmitConvolution(l, n, c, filter, l.QuantizedBias(b, *scale, l.type(input).quant.scale));
  // Without a bias XNNPACK would look up its packed filters by a bias that is null (pytorch/executorch#18946).
  const size_t out = static_cast<size_t>(f.out);
  EmitConvolution(l, n, c, filter, b ? l.Weight(*b) : l.Weight(StrCat("dovetail.zeros.", out), Shape{Dim(f.out)}, [&] { return std::vector<float>(out, 0); }));
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
  const int64_t kernel[] = {GetAttr(n, "kernel_size").IntAt(0), GetAttr(n, "kernel_size").IntAt(1)};
  const Result<Window> window = ReadWindow(kernel, GetAttr(n, "stride"), GetAttr(n, "padding"), max ? &GetAttr(n, "dilation") : nullptr, 0);
  if (!window.ok()) return l.Fail(std::string(window.status().message()));
  const Window& w = *window;
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
  XnnNode node = PoolNode(max ? Kind::XNNMaxPooling2d : Kind::XNNAvgPooling2d, x, w, padding);
  const Id y = l.Emit(std::move(node), Shape{to[0], to[2], to[3], to[1]}, l.TypeOf(n.results[0]));
  l.Bind(n.results[0], y, Order::kChannelsLast);
}

}  // namespace

LowerFn FindSpatial(OpId op) {
  switch (op) {
    case OpId::kConvolution: return Convolution;
    case OpId::kQuantizedConvolution: return QuantizedConvolution;
    case OpId::kMaxPool2dWithIndices:
    case OpId::kAvgPool2d: return Pool;
    default: return nullptr;
  }
}

}  // namespace dovetail::xnnpack
