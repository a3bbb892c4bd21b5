#include <array>

#include "backends/qnn/lowering.h"
#include "ops/window.h"

namespace dovetail::qnn {
namespace {

std::vector<QnnParam> Placement(const Window& w, std::string_view filter = {}) {
  std::vector<QnnParam> params = {Uints("stride", {2}, {w[0].stride, w[1].stride}),
                                  Uints("pad_amount", {2, 2}, {w[0].padding, w[0].padding, w[1].padding, w[1].padding})};
  if (!filter.empty()) params.push_back(Uints(std::string(filter), {2}, {w[0].kernel, w[1].kernel}));
  return params;
}

struct Filter {
  size_t spatial = 2;
  uint32_t groups = 1, out = 0, in = 0, kh = 1, kw = 1;  // of all groups
  bool transposed = false, depthwise = false;

  uint32_t in_group() const { return in / groups; }
  uint32_t out_group() const { return out / groups; }
  // [kh, kw, in/groups, out], of a transposed one [kh, kw, in, out/groups], of a depthwise one [kh, kw, 1, out].
  Dims dims() const { return transposed ? Dims{kh, kw, in, out_group()} : Dims{kh, kw, in_group(), out}; }
};

Filter ReadFilter(Lowering& l, const Node& n, const Shape& weight) {
  Filter f;
  const size_t rank = weight.rank();
  if (rank != 3 && rank != 4) {
    l.Fail(StrCat("a convolution over ", rank - 2, " dims"));
    return f;
  }
  f.spatial = rank - 2;
  f.kh = f.spatial == 2 ? static_cast<uint32_t>(weight[2].value()) : 1;
  f.kw = static_cast<uint32_t>(weight[rank - 1].value());
  f.groups = static_cast<uint32_t>(GetAttr(n, "groups").Int(1));
  f.transposed = GetAttr(n, "transposed").Bool();
  const uint32_t a = static_cast<uint32_t>(weight[0].value()), b = static_cast<uint32_t>(weight[1].value());
  f.out = f.transposed ? b * f.groups : a;
  f.in = f.transposed ? a : b * f.groups;
  // With several results for each input channel, the library fails on narrow images (SDK 2.51); as groups it takes them.
  f.depthwise = !f.transposed && f.groups > 1 && f.groups == f.in && f.in == f.out;
  return f;
}

// From [out, in/groups, kh, kw], or [in, out/groups, kh, kw] of a transposed one.
std::vector<std::byte> Turned(const std::vector<std::byte>& from, const Filter& f, size_t width) {
  std::vector<std::byte> to(from.size());
  const size_t taps = static_cast<size_t>(f.kh) * f.kw, first = f.transposed ? f.in : f.out, second = f.transposed ? f.out_group() : f.in_group();
  for (size_t a = 0; a < first; ++a)
    for (size_t b = 0; b < second; ++b)
      for (size_t t = 0; t < taps; ++t) {
        const size_t source = (a * second + b) * taps + t;
        const size_t target = f.transposed ? (t * first + a) * second + b : (t * second + b) * first + a;
        std::copy_n(from.begin() + static_cast<ptrdiff_t>(source * width), width, to.begin() + static_cast<ptrdiff_t>(target * width));
      }
  return to;
}

void Convolution(Lowering& l, const Node& n) {
  const ValueId bias = GetOperand(n, "bias"), input = GetOperand(n, "input");
  const Constant* weight = l.ConstantOf(GetOperand(n, "weight"));
  const Constant* b = bias == kNone ? nullptr : l.ConstantOf(bias);
  if (!weight || (bias != kNone && !b)) return l.Fail("a convolution whose weight is not a constant");
  const bool quantized = n.op == OpId::kQuantizedConvolution;
  if (quantized && (GetOperand(n, "input_scale") != kNone || !l.type(input).per_tensor())) return l.Fail("a convolution whose input is not of fixed point");
  const Filter f = ReadFilter(l, n, weight->type.shape);
  if (l.failed()) return;
  const int64_t kernel[] = {f.kh, f.kw};
  const Result<Window> window = ReadWindow(std::span(kernel).last(f.spatial), GetAttr(n, "stride"), GetAttr(n, "padding"), &GetAttr(n, "dilation"), 1);
  if (!window.ok()) return l.Fail(std::string(window.status().message()));
  const Window& w = *window;
  const Dims result = l.DimsOf(n.results[0]);
  Id x;
  if (f.spatial == 2) {
    x = l.In(input, Order::kChannelsLast);
  } else {
    const Id rows = l.Transpose(l.In(input), {0, 2, 1});
    x = l.Reshape(rows, {l.dims(rows)[0], 1, l.dims(rows)[1], l.dims(rows)[2]});
  }
  std::vector<Id> operands = {x};
  if (quantized) {
    QnnWeight q;
    q.dims = f.dims();
    q.axis = 3;
    q.bits = weight->type.quant.bits;
    const Constant* scale = l.ConstantOf(GetOperand(n, "weight_scale"));
    if (!scale) return l.Fail("a quantized convolution whose scales are not constants");
    q.scales = l.FloatsOf(*scale);
    q.make = [&l, weight, f] { return Turned(l.DataOf(*weight), f, 1); };
    operands.push_back(l.Once(KeyOf(l, *weight, *scale, f.transposed ? "transposed" : "filter"), [&] { return l.Weight(q, weight->name); }));
    if (b) operands.push_back(l.Bias(*b, l.qnn_type(x).scale, q.scales));
  } else {
    operands.push_back(l.Static(f.dims(), l.TypeOf(GetOperand(n, "weight")), [&] { return Turned(l.DataOf(*weight), f, ByteSize(weight->type.dtype)); }));
    if (b) operands.push_back(l.In(bias));
  }
  std::vector<QnnParam> params = Placement(w);
  if (!f.transposed) params.push_back(Uints("dilation", {2}, {w[0].dilation, w[1].dilation}));
  if (!f.depthwise) params.push_back(Uint("group", f.groups));
  if (f.transposed) {
    // Seen on the simulator of SDK 2.51: the second group's results are wrong.
    if (f.groups > 1) return l.Fail("a grouped transposed convolution");
    if (w[0].dilation != 1 || w[1].dilation != 1) return l.Fail("a transposed convolution with dilation");
    std::vector<int64_t> extra(2, 0);
    for (size_t i = 0; i < f.spatial; ++i) extra[2 - f.spatial + i] = GetAttr(n, "output_padding").IntAt(i);
    params.push_back(Uints("output_padding", {2}, extra));
  }
  const std::string_view op = f.transposed ? "TransposeConv2d" : f.depthwise ? "DepthWiseConv2d" : "Conv2d";
  if (f.spatial == 2) return l.Op(op, operands, {l.Out(n.results[0], Order::kChannelsLast)}, params);
  const Id y = l.Temp({result[0], 1, result[2], result[1]}, l.TypeOf(n.results[0]));
  l.Op(op, operands, {y}, params);
  l.TransposeInto(l.Reshape(y, {result[0], result[2], result[1]}), {0, 2, 1}, l.Out(n.results[0]));
}

void Pool(Lowering& l, const Node& n) {
  const bool max = n.op == OpId::kMaxPool2dWithIndices;
  if (l.type(n.operands[0]).rank() != 4) return l.Fail("a pooling of a tensor that has not 4 dims");
  if (max && l.graph().CountUses()[n.results[1]] != 0) return l.Fail("a pooling whose indices are used");
  const int64_t kernel[] = {GetAttr(n, "kernel_size").IntAt(0), GetAttr(n, "kernel_size").IntAt(1)};
  const Result<Window> window = ReadWindow(kernel, GetAttr(n, "stride"), GetAttr(n, "padding"), max ? &GetAttr(n, "dilation") : nullptr, 0);
  if (!window.ok()) return l.Fail(std::string(window.status().message()));
  const Window& w = *window;
  if (w[0].dilation != 1 || w[1].dilation != 1) return l.Fail("a pooling with dilation");
  if (!max && !GetAttr(n, "divisor_override").is_none()) return l.Fail("an average pooling with divisor_override");
  const Dims from = l.DimsOf(n.operands[0]), to = l.DimsOf(n.results[0]);
  for (size_t i = 0; i < 2; ++i)
    if (!max && (to[2 + i] - 1) * w[i].stride + w[i].kernel > from[2 + i] + 2 * w[i].padding)
      return l.Fail("an average with ceil_mode whose last window is not whole");
  std::vector<QnnParam> params = Placement(w, "filter_size");
  params.push_back(Uint("rounding_mode", GetAttr(n, "ceil_mode").Bool() ? 1 : 0));
  if (!max) params.push_back(Bool("count_pad_for_edges", GetAttr(n, "count_include_pad").Bool()));
  l.Op(max ? "PoolMax2d" : "PoolAvg2d", {l.In(n.operands[0], Order::kChannelsLast)}, {l.Out(n.results[0], Order::kChannelsLast)}, params);
}

void Upsample(Lowering& l, const Node& n) {
  const bool bilinear = n.op == OpId::kUpsampleBilinear2d;
  const bool corners = bilinear && GetAttr(n, "align_corners").Bool();
  // QNN steps by the ratio of the sizes.
  const Dims from = l.DimsOf(n.operands[0]), to = l.DimsOf(n.results[0]);
  if (const auto* factors = GetAttr(n, "scale_factors").get<std::vector<double>>(); factors && !corners)
    for (size_t i = 0; i < 2; ++i)
      if (const double factor = (*factors)[i]; factor * from[2 + i] != to[2 + i])
        return l.Fail(StrCat("a resize by a factor of ", FormatDouble(factor), " to a size that is rounded"));
  const std::vector<QnnParam> params = {Bool("align_corners", corners), Bool("half_pixel_centers", bilinear && !corners)};
  const std::string_view op = bilinear ? "ResizeBilinear" : "ResizeNearestNeighbor";
  l.Op(op, {l.In(n.operands[0], Order::kChannelsLast)}, {l.Out(n.results[0], Order::kChannelsLast)}, params);
}

}  // namespace

LowerFn FindSpatial(OpId op) {
  switch (op) {
    case OpId::kConvolution:
    case OpId::kQuantizedConvolution: return Convolution;
    case OpId::kMaxPool2dWithIndices:
    case OpId::kAvgPool2d: return Pool;
    case OpId::kUpsampleNearest2d:
    case OpId::kUpsampleBilinear2d: return Upsample;
    default: return nullptr;
  }
}

}  // namespace dovetail::qnn
