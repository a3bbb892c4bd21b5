// Layers: products, convolutions, pooling, attention, recurrent cells.
#include <cmath>

#include "import/rules.h"
#include "ops/infer_util.h"

namespace dovetail::pt2 {
namespace {

// Dropout and the like: nothing in eval mode.
void Dropout(Call& c) {
  if (c.Bool("train", false) && c.Float("p", 0.5) > 0) return c.Fail(Unsupported(kTrainingMode));
  c.ReturnView(c.Handle(c.Has("input") ? "input" : "self"));  // what dropout_ calls it
}

// Products.

// `v` before it was transposed, kNone when it was not.
ValueId Transposed(Call& c, ValueId v) {
  const Node* n = c.Producer(v);
  if (!n || n->op != OpId::kPermute || c.shape(v).rank() != 2 || n->attrs[0] != Attr::Ints({1, 0})) return kNone;
  return n->operands[0];
}
// a @ b for matrices: a linear layer where b is a transposed matrix, as decomposition leaves them.
ValueId MatrixProduct(Call& c, ValueId a, ValueId b, ValueId bias = kNone) {
  if (const ValueId weight = c.ok() ? Transposed(c, b) : kNone; weight != kNone) return c.Emit(OpId::kLinear, {a, weight, bias});
  const ValueId product = c.Emit(OpId::kMatmul, {a, b});
  return bias == kNone ? product : c.Binary(OpId::kAdd, product, bias);
}
void Mm(Call& c) { c.Return(MatrixProduct(c, c.Tensor("self"), c.Tensor(c.Has("mat2") ? "mat2" : "vec"))); }
void Dot(Call& c) { c.Return(c.Emit(OpId::kMatmul, {c.Tensor("self"), c.Tensor("tensor")})); }
ValueId Scaled(Call& c, ValueId v, std::string_view factor) {
  const Attr f = c.Scalar(factor);
  return f.is_none() || f.Number() == 1 ? v : c.Emit(OpId::kMul, {v, c.ScalarTensor(f, c.type(v).dtype)});
}
void Addmm(Call& c) {
  const ValueId bias = Scaled(c, c.Tensor("self"), "beta"), a = c.Tensor("mat1"), b = c.Tensor("mat2");
  const bool plain = !c.Has("alpha") || c.Scalar("alpha").Number() == 1;
  if (plain && c.shape(bias).rank() == 1) return c.Return(MatrixProduct(c, a, b, bias));
  c.Return(c.Binary(OpId::kAdd, Scaled(c, MatrixProduct(c, a, b), "alpha"), bias));
}
void Addmv(Call& c) {
  const ValueId product = c.Emit(OpId::kMatmul, {c.Tensor("mat"), c.Tensor("vec")});
  c.Return(c.Binary(OpId::kAdd, Scaled(c, product, "alpha"), Scaled(c, c.Tensor("self"), "beta")));
}
void Baddbmm(Call& c) {
  const ValueId product = c.Emit(OpId::kBmm, {c.Tensor("batch1"), c.Tensor("batch2")});
  c.Return(c.Binary(OpId::kAdd, Scaled(c, product, "alpha"), Scaled(c, c.Tensor("self"), "beta")));
}

// Attention.

Attr OptionalFloat(Call& c, std::string_view name) {
  if (!c.Has(name)) return {};
  return c.Float(name);
}
ValueId AsRank4(Call& c, ValueId v) {
  if (!c.ok() || v == kNone || c.shape(v).rank() >= 4) return v;
  std::vector<Dim> sizes = DimsOf(c.shape(v));
  while (sizes.size() < 4) sizes.insert(sizes.size() < 3 ? sizes.begin() : sizes.begin() + 1, 1);
  return c.Reshape(v, std::move(sizes));
}
void Attention(Call& c) {
  const ValueId q = c.Tensor("query"), k = c.Tensor("key"), v = c.Tensor("value"), mask = c.OptionalTensor("attn_mask");
  if (c.Float("dropout_p", 0) != 0) return c.Fail(Unsupported(kTrainingMode));
  if (!c.ok()) return;
  const Shape shape = c.shape(q);
  if (shape.rank() < 2 || shape.rank() > 4) return c.Fail(Unsupported("attention of a query ", c.type(q).ToString(), "; its rank must be 2 to 4"));
  // One key head is broadcast in any case.
  if (!c.Bool("enable_gqa", false) && shape.rank() == 4 && c.shape(k).rank() == 4 && c.shape(k)[1] != shape[1] && c.shape(k)[1] != Dim(1))
    return c.Fail(InvalidArgument("attention of ", shape[1].ToString(), " query heads with ", c.shape(k)[1].ToString(), " key heads, without enable_gqa"));
  // Of a mask [B, S, T] with inputs of rank 3, B stands where the heads' batch is.
  const ValueId m = mask != kNone && shape.rank() == 3 && c.shape(mask).rank() == 3 ? AsRank4(c, mask) : mask;
  std::vector<Dim> out = DimsOf(shape);
  out.back() = c.shape(v).back();
  const Attr scale = OptionalFloat(c, "scale");
  const ValueId result = c.Emit(OpId::kAttention, {AsRank4(c, q), AsRank4(c, k), AsRank4(c, v), m, kNone},
                                {{"is_causal", c.Bool("is_causal", false)}, {"scale", scale}});
  c.Return(c.Reshape(result, std::move(out)));
}

// Convolution and pooling.

std::vector<Dim> Repeated(std::vector<int64_t> values, size_t n) {
  if (values.size() == 1) values.resize(n, values[0]);
  return {values.begin(), values.end()};
}

// Padding "same" puts the odd element at the end.
ValueId PadSame(Call& c, ValueId input, const Shape& kernel, const std::vector<Dim>& dilation) {
  std::vector<Dim> pad;
  bool any = false;
  for (size_t i = dilation.size(); i-- > 0;) {
    const int64_t total = (dilation[i] * (kernel[2 + i] - Dim(1))).constant().value_or(0);
    pad.push_back(total / 2);
    pad.push_back(total - total / 2);
    any = any || total != 0;
  }
  return any ? c.Emit(OpId::kConstantPadNd, {input}, {{"pad", std::move(pad)}}) : input;
}

void Convolve(Call& c, bool transposed) {
  ValueId input = c.Tensor("input");
  const ValueId weight = c.Tensor("weight"), bias = c.OptionalTensor("bias");
  if (!c.ok()) return;
  const Shape kernel = c.shape(weight);
  if (kernel.rank() < 3 || kernel.rank() > 4) return c.Fail(Unsupported("a convolution with a weight of rank ", kernel.rank(), "; only 1d and 2d"));
  const size_t n = kernel.rank() - 2;
  const bool unbatched = c.shape(input).rank() == n + 1;
  if (unbatched) {
    std::vector<Dim> sizes = DimsOf(c.shape(input));
    sizes.insert(sizes.begin(), 1);
    input = c.Reshape(input, std::move(sizes));
  }
  std::vector<Dim> dilation = Repeated(c.Ints("dilation", {1}), n), padding(n, 0);
  const Arg* pad = c.Find("padding");
  if (!pad || pad->type != ArgType::kString) padding = Repeated(c.Ints("padding", {0}), n);
  else if (pad->text == "same" && dilation.size() == n) input = PadSame(c, input, kernel, dilation);
  else if (pad->text != "valid") return c.Fail(Unsupported("a convolution with padding '", pad->text, "'"));
  const ValueId out = c.Emit(OpId::kConvolution, {input, weight, bias},
                             {{"stride", Repeated(c.Ints("stride", {1}), n)},
                              {"padding", std::move(padding)},
                              {"dilation", std::move(dilation)},
                              {"transposed", transposed},
                              {"output_padding", Repeated(c.Ints("output_padding", {0}), n)},
                              {"groups", c.Int("groups", 1)}});
  if (!unbatched || !c.ok()) return c.Return(out);
  std::vector<Dim> sizes = DimsOf(c.shape(out));
  sizes.erase(sizes.begin());
  c.Return(c.Reshape(out, std::move(sizes)));
}

void MaxPool2d(Call& c) {
  const ValueId x = c.Tensor("self");
  const std::vector<ValueId> out = c.EmitAll(OpId::kMaxPool2dWithIndices, {x},
                                             {{"kernel_size", Repeated(c.Ints("kernel_size", {1}), 2)},
                                              {"stride", Repeated(c.Ints("stride", {}), 2)},
                                              {"padding", Repeated(c.Ints("padding", {0}), 2)},
                                              {"dilation", Repeated(c.Ints("dilation", {1}), 2)},
                                              {"ceil_mode", c.Bool("ceil_mode", false)}});
  c.Return(out[0]);
}
void MaxPool2dWithIndices(Call& c) {
  const ValueId x = c.Tensor("self");
  c.Return(c.EmitAll(OpId::kMaxPool2dWithIndices, {x},
                     {{"kernel_size", Repeated(c.Ints("kernel_size", {1}), 2)},
                      {"stride", Repeated(c.Ints("stride", {}), 2)},
                      {"padding", Repeated(c.Ints("padding", {0}), 2)},
                      {"dilation", Repeated(c.Ints("dilation", {1}), 2)},
                      {"ceil_mode", c.Bool("ceil_mode", false)}}));
}

// To an output of 1, a mean; to one that divides the input, a pool of equal windows.
void AdaptiveAvgPool(Call& c) {
  const ValueId x = c.Tensor("self");
  const std::vector<Dim> to = c.SymInts("output_size");
  if (!c.ok()) return;
  const size_t n = to.size(), rank = c.shape(x).rank();
  if (n == 0 || n > rank) return c.Fail(InvalidArgument("adaptive pooling of a tensor of rank ", rank));
  std::vector<Dim> dims, windows;
  bool ones = true;
  for (size_t i = 0; i < n; ++i) {
    const Dim from = c.shape(x)[rank - n + i];
    dims.push_back(static_cast<int64_t>(i) - static_cast<int64_t>(n));
    ones = ones && to[i] == Dim(1);
    if (from.is_constant() && to[i].is_constant() && to[i].value() > 0 && from.value() % to[i].value() == 0) windows.push_back(from.value() / to[i].value());
  }
  if (ones) return c.Return(c.Emit(OpId::kMean, {x}, {{"dim", std::move(dims)}, {"keepdim", true}}));
  if (n != 2 || windows.size() != 2) return c.Fail(Unsupported("adaptive pooling with windows of different sizes; the output size must divide the input size"));
  c.Return(c.Emit(OpId::kAvgPool2d, {x}, {{"kernel_size", windows}, {"stride", windows}}));
}

void Pad(Call& c) {
  const ValueId x = c.Tensor("self");
  std::vector<Dim> pad = c.SymInts("pad");
  const std::string_view mode = c.String("mode", "constant");
  if (mode == "constant")
    return c.Return(c.Emit(OpId::kConstantPadNd, {x}, {{"pad", std::move(pad)}, {"value", c.Has("value") ? c.Scalar("value") : Attr(0)}}));
  if (mode == "reflect" && pad.size() == 2) return c.Return(c.Emit(OpId::kReflectionPad1d, {x}, {{"padding", std::move(pad)}}));
  c.Fail(Unsupported("padding of mode '", mode, "' of ", pad.size() / 2, " dimensions"));
}

// Recurrent cells.

// input @ w^T + b, cut into `n` gates.
std::vector<ValueId> Gates(Call& c, ValueId sum, size_t n) {
  std::vector<ValueId> gates(n, kNone);
  if (!c.ok()) return gates;
  const size_t last = c.shape(sum).rank() - 1;
  const Dim width = Dim::FloorDiv(c.shape(sum)[last], static_cast<int64_t>(n));
  for (size_t i = 0; i < n; ++i) {
    const Dim start = width * Dim(static_cast<int64_t>(i));
    gates[i] = c.Emit(OpId::kSlice, {sum}, {{"dim", static_cast<int64_t>(last)}, {"start", start}, {"end", start + width}});
  }
  return gates;
}
void LstmCell(Call& c) {
  const std::vector<ValueId> hx = c.Tensors("hx");
  if (!c.ok() || hx.size() != 2) return c.Fail(InvalidArgument("lstm_cell without its two states"));
  const ValueId x = c.Emit(OpId::kLinear, {c.Tensor("input"), c.Tensor("w_ih"), c.OptionalTensor("b_ih")});
  const ValueId h = c.Emit(OpId::kLinear, {hx[0], c.Tensor("w_hh"), c.OptionalTensor("b_hh")});
  const std::vector<ValueId> g = Gates(c, c.Emit(OpId::kAdd, {x, h}), 4);  // input, forget, cell, output
  const ValueId kept = c.Emit(OpId::kMul, {c.Emit(OpId::kSigmoid, {g[1]}), hx[1]});
  const ValueId added = c.Emit(OpId::kMul, {c.Emit(OpId::kSigmoid, {g[0]}), c.Emit(OpId::kTanh, {g[2]})});
  const ValueId cell = c.Emit(OpId::kAdd, {kept, added});
  c.Return(c.Emit(OpId::kMul, {c.Emit(OpId::kSigmoid, {g[3]}), c.Emit(OpId::kTanh, {cell})}));
  c.Return(cell);
}
void GruCell(Call& c) {
  const ValueId h = c.Tensor("hx");
  const std::vector<ValueId> x = Gates(c, c.Emit(OpId::kLinear, {c.Tensor("input"), c.Tensor("w_ih"), c.OptionalTensor("b_ih")}), 3);
  const std::vector<ValueId> y = Gates(c, c.Emit(OpId::kLinear, {h, c.Tensor("w_hh"), c.OptionalTensor("b_hh")}), 3);  // reset, update, new
  const ValueId reset = c.Emit(OpId::kSigmoid, {c.Emit(OpId::kAdd, {x[0], y[0]})}), update = c.Emit(OpId::kSigmoid, {c.Emit(OpId::kAdd, {x[1], y[1]})});
  const ValueId fresh = c.Emit(OpId::kTanh, {c.Emit(OpId::kAdd, {x[2], c.Emit(OpId::kMul, {reset, y[2]})})});
  c.Return(c.Emit(OpId::kAdd, {fresh, c.Emit(OpId::kMul, {update, c.Emit(OpId::kSub, {h, fresh})})}));
}

constexpr Rule kRules[] = {
    {"aten.dropout.default", Dropout},
    {"aten.feature_dropout.default", Dropout},
    {"aten.alpha_dropout.default", Dropout},
    {"aten.native_dropout.default", Dropout},
    {"aten.mm.default", Mm},
    {"aten.mv.default", Mm},
    {"aten.dot.default", Dot},
    {"aten.addmm.default", Addmm},
    {"aten.addmv.default", Addmv},
    {"aten.baddbmm.default", Baddbmm},
    {"aten.scaled_dot_product_attention.default", Attention},
    {"aten.conv1d.default", [](Call& c) { Convolve(c, false); }},
    {"aten.conv1d.padding", [](Call& c) { Convolve(c, false); }},
    {"aten.conv2d.default", [](Call& c) { Convolve(c, false); }},
    {"aten.conv2d.padding", [](Call& c) { Convolve(c, false); }},
    {"aten.conv_transpose1d.default", [](Call& c) { Convolve(c, true); }},
    {"aten.conv_transpose2d.input", [](Call& c) { Convolve(c, true); }},
    {"aten.max_pool2d.default", MaxPool2d},
    {"aten.max_pool2d_with_indices.default", MaxPool2dWithIndices},
    {"aten.adaptive_avg_pool1d.default", AdaptiveAvgPool},
    {"aten.adaptive_avg_pool2d.default", AdaptiveAvgPool},
    {"aten._adaptive_avg_pool2d.default", AdaptiveAvgPool},
    {"aten.pad.default", Pad},
    {"aten.lstm_cell.default", LstmCell},
    {"aten.gru_cell.default", GruCell},
};

}  // namespace

const std::span<const Rule> kNeuralRules = kRules;

}  // namespace dovetail::pt2
