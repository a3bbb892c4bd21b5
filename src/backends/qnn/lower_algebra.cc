#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/qnn/lowering.h"
#include "ops/infer_util.h"

namespace dovetail::qnn {
namespace {

// [N, K], N the product of all dims but the last.
Dims AsRows(const Dims& dims) { return {static_cast<uint32_t>(Numel(std::span(dims).first(dims.size() - 1))), dims.back()}; }

void Linear(Lowering& l, const Node& n) {
  const ValueId bias = GetOperand(n, "bias");
  const Constant* weight = l.ConstantOf(GetOperand(n, "weight"));
  if (!weight || (bias != kNone && !l.ConstantOf(bias))) return l.Fail("a linear layer whose weight is not a constant");
  const Id x = l.In(n.operands[0]);
  std::vector<Id> in = {l.Reshape(x, AsRows(l.dims(x))), l.In(GetOperand(n, "weight"))};
  if (bias != kNone) in.push_back(l.In(bias));
  const Dims result = l.DimsOf(n.results[0]);
  const Id y = l.Temp(AsRows(result), l.TypeOf(n.results[0]));
  l.Op("FullyConnected", in, {y});
  l.ReshapeInto(y, l.Out(n.results[0]));
}

// The scales of a 4-bit weight with blocks as a scale per row times factors 1..16, which is all that the hardware has. Empty if they are not such.
bool SplitScales(const std::vector<float>& scales, size_t rows, QnnWeight* w) {
  const size_t blocks = scales.size() / rows;
  for (size_t r = 0; r < rows; ++r) {
    const float most = *std::max_element(scales.begin() + static_cast<ptrdiff_t>(r * blocks), scales.begin() + static_cast<ptrdiff_t>((r + 1) * blocks));
    bool found = false;
    for (int k = 1; k <= 16 && !found; ++k) {
      const float base = most / static_cast<float>(k);
      std::vector<uint8_t> factors;
      for (size_t b = 0; b < blocks; ++b) {
        const float f = scales[r * blocks + b] / base, whole = std::nearbyint(f);
        if (std::abs(f - whole) > 1e-3f || whole < 1 || whole > 16) break;
        factors.push_back(static_cast<uint8_t>(whole));
      }
      found = factors.size() == blocks;
      if (!found) continue;
      w->scales.push_back(base);
      w->block_factors.insert(w->block_factors.end(), factors.begin(), factors.end());
    }
    if (!found) return false;
  }
  return true;
}

std::vector<float> ScalesOf(Lowering& l, const Constant& c) {
  if (c.type.dtype == DType::kF32) return l.FloatsOf(c);
  if (c.type.dtype != DType::kBF16) l.Fail("weight scales that are neither f32 nor bf16");
  const std::vector<std::byte> data = l.DataOf(c);
  std::vector<float> scales(data.size() / 2);
  for (size_t i = 0; i < scales.size(); ++i) {
    uint16_t half;
    std::memcpy(&half, data.data() + i * 2, 2);
    const uint32_t bits = static_cast<uint32_t>(half) << 16;
    std::memcpy(&scales[i], &bits, 4);
  }
  return scales;
}

// As a convolution of 1 x 1, which has all forms of weights: [1, 1, N, K] * [1, 1, K, out].
void QuantizedLinear(Lowering& l, const Node& n) {
  const Constant* weight = l.ConstantOf(GetOperand(n, "weight"));
  const Constant* scale = l.ConstantOf(GetOperand(n, "weight_scale"));
  const ValueId bias = GetOperand(n, "bias"), input = GetOperand(n, "input");
  if (!weight || !scale || (bias != kNone && !l.ConstantOf(bias))) return l.Fail("a quantized linear layer whose weight is not a constant");
  if (GetOperand(n, "input_scale") != kNone || !l.type(input).per_tensor()) return l.Fail("a linear layer whose input is not of fixed point");
  const Dims result = l.DimsOf(n.results[0]);
  const bool packed = weight->type.quant.kind == QuantParams::Kind::kPerBlock;
  const uint32_t out = result.back();
  const Id x = l.In(input);
  const uint32_t in = l.dims(x).back();
  if (weight->type.shape.numel() != Dim(static_cast<int64_t>(out) * in / (packed ? 2 : 1))) return l.Fail("a quantized weight of another shape");
  QnnWeight w;
  w.dims = {1, 1, in, out};
  w.axis = 3;
  // 4 bits per channel go as 8. Seen on the simulator of SDK 2.51: with 4 it computes something else where a relu follows a result of several leading dims.
  w.bits = packed ? 4 : 8;
  if (packed) {
    if (!SplitScales(ScalesOf(l, *scale), out, &w)) return l.Fail("4-bit blocks whose scales are not multiples of one per row; quantize with qnn-16a4w");
  } else {
    w.scales = ScalesOf(l, *scale);
  }
  if (w.scales.size() != out) return l.Fail("a quantized weight with another number of scales");
  w.make = [&l, weight, packed, in, out] {
    const std::vector<std::byte> from = l.DataOf(*weight);
    std::vector<std::byte> to(static_cast<size_t>(in) * out);
    for (size_t o = 0; o < out; ++o)
      for (size_t i = 0; i < in; ++i) {
        const size_t at = o * in + i;
        int v = packed ? (static_cast<int>(from[at / 2]) >> (at % 2 * 4) & 15) - 8 : static_cast<int8_t>(from[at]);
        to[i * out + o] = static_cast<std::byte>(static_cast<int8_t>(v));
      }
    return to;
  };
  const Dims rows = AsRows(l.dims(x));
  const Id filter = l.Once(KeyOf(l, *weight, *scale, "linear"), [&] { return l.Weight(w, weight->name); });
  std::vector<Id> operands = {l.Reshape(x, {1, 1, rows[0], in}), filter};
  if (bias != kNone) operands.push_back(l.Bias(*l.ConstantOf(bias), l.qnn_type(x).scale, w.scales));
  const Id y = l.Temp({1, 1, rows[0], out}, l.TypeOf(n.results[0]));
  l.Op("Conv2d", operands, {y}, {Uints("stride", {2}, {1, 1}), Uints("pad_amount", {2, 2}, {0, 0, 0, 0}), Uints("dilation", {2}, {1, 1})});
  l.ReshapeInto(y, l.Out(n.results[0]));
}

void MatMul(Lowering& l, const Node& n) {
  if (l.type(n.operands[0]).rank() < 2 || l.type(n.operands[1]).rank() < 2) return l.Fail("a product with a vector");
  const Node* permute = l.graph().producer_if(n.operands[1], OpId::kPermute);
  const bool swaps = permute && SwapsLastTwo(*permute);
  const Id a = l.In(n.operands[0]);
  const auto multiply = [&](ValueId b, bool transposed) {
    l.Op("MatMul", {a, l.In(b)}, {l.Out(n.results[0])}, {Bool("transpose_in0", false), Bool("transpose_in1", transposed)});
  };
  // The permutation is part of the product where both come into one region, which is not known while checking.
  if (!swaps || l.checking()) multiply(n.operands[1], false);
  if (swaps) multiply(permute->operands[0], true);
}

void Softmax(Lowering& l, const Node& n) {
  const Result<size_t> axis = NormalizeAxis(GetAttr(n, "dim").Int(), l.type(n.results[0]).rank());
  if (!axis.ok()) return l.Fail("a softmax along a bad dimension");
  l.Op("Softmax", {l.In(n.operands[0])}, {l.Out(n.results[0])}, {Uint("axis", *axis)});
}

void RmsNorm(Lowering& l, const Node& n) {
  const Id x = l.In(n.operands[0]);
  const uint32_t last = static_cast<uint32_t>(l.dims(x).size() - 1);
  l.Op("RmsNorm", {x, l.In(n.operands[1])}, {l.Out(n.results[0])}, {Float("epsilon", GetAttr(n, "eps").Number()), Uints("axes", {1}, {last})});
}

// A constant of 16 bits with its zero in the middle, which is the only form that a layer norm takes.
Id Centered(Lowering& l, ValueId v) {
  constexpr int32_t kMiddle = 32768;
  const Constant* c = l.ConstantOf(v);
  const QnnType type = l.TypeOf(v);
  if (!c || type.data_type != abi::DataType::kUfixed16 || type.zero_point == kMiddle) return l.In(v);
  const std::vector<std::byte> data = l.DataOf(*c);
  std::vector<uint16_t> integers(data.size() / sizeof(uint16_t));
  if (!data.empty()) std::memcpy(integers.data(), data.data(), data.size());
  int32_t most = 1;
  for (uint16_t i : integers) most = std::max(most, std::abs(static_cast<int32_t>(i) - type.zero_point));
  const double factor = static_cast<double>(most) / (kMiddle - 1);
  std::vector<std::byte> turned(data.size());
  for (size_t k = 0; k < integers.size(); ++k) {
    const auto stored = static_cast<uint16_t>(std::nearbyint((static_cast<double>(integers[k]) - type.zero_point) / factor) + kMiddle);
    std::memcpy(turned.data() + k * sizeof stored, &stored, sizeof stored);
  }
  return l.Static(l.DimsOf(v), {type.data_type, true, static_cast<float>(static_cast<double>(type.scale) * factor), kMiddle}, [&] { return turned; });
}

void LayerNorm(Lowering& l, const Node& n) {
  const Id x = l.In(n.operands[0]);
  const uint32_t last = static_cast<uint32_t>(l.dims(x).size() - 1);
  l.Op("LayerNorm", {x, Centered(l, n.operands[1]), l.In(n.operands[2])}, {l.Out(n.results[0])},
       {Float("epsilon", GetAttr(n, "eps").Number()), Uints("axes", {1}, {last})});
}

void Reduce(Lowering& l, const Node& n) {
  const size_t rank = l.type(n.operands[0]).rank();
  std::vector<int64_t> axes;
  const Attr& attr = GetAttr(n, "dim");
  if (!attr.is_none())
    for (Dim d : DimsOf(attr)) {
      const Result<size_t> axis = NormalizeAxis(d.value(), rank);
      if (!axis.ok()) return l.Fail("a reduction along a bad dimension");
      axes.push_back(static_cast<int64_t>(*axis));
    }
  if (axes.empty())
    for (size_t i = 0; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
  // Over dims that channels last has elsewhere.
  const bool last = rank == 4 && l.OnlyChannelsLast(n.operands[0]);
  const bool keep = GetAttr(n, "keepdim").Bool();
  const bool image = last && axes.size() == 2 && std::min(axes[0], axes[1]) == 2;
  const Id x = l.In(n.operands[0], image ? Order::kChannelsLast : Order::kPlain);
  if (image) axes = {1, 2};
  // Seen on the simulator of SDK 2.51: such a mean is taken of other elements.
  if (n.op == OpId::kMean && l.graph().producer_if(n.operands[0], OpId::kConstantPadNd)) return l.Fail("a mean of a padded tensor");
  const std::string_view op = n.op == OpId::kMean ? "ReduceMean" : n.op == OpId::kSum ? "ReduceSum" : "ReduceMax";
  const std::vector<QnnParam> params = {Uints("axes", {static_cast<uint32_t>(axes.size())}, axes), Bool("keep_dims", keep)};
  l.Op(op, {x}, {l.Out(n.results[0], image && keep ? Order::kChannelsLast : Order::kPlain)}, params);
}

// The greatest of the bools as integers.
void Any(Lowering& l, const Node& n) {
  const Result<size_t> axis = NormalizeAxis(GetAttr(n, "dim").Int(), l.type(n.operands[0]).rank());
  if (!axis.ok() || l.type(n.operands[0]).dtype != DType::kBool) return l.Fail("`any` of numbers");
  const Id x = l.In(n.operands[0]), integers = l.Temp(l.dims(x), kInt32), most = l.Temp(l.DimsOf(n.results[0]), kInt32);
  l.Op("Cast", {x}, {integers});
  l.Op("ReduceMax", {integers}, {most}, {Uints("axes", {1}, {static_cast<int64_t>(*axis)}), Bool("keep_dims", GetAttr(n, "keepdim").Bool())});
  l.Op("Cast", {most}, {l.Out(n.results[0])});
}

}  // namespace

LowerFn FindAlgebra(OpId op) {
  switch (op) {
    case OpId::kLinear: return Linear;
    case OpId::kQuantizedLinear: return QuantizedLinear;
    case OpId::kBmm:
    case OpId::kMatmul: return MatMul;
    case OpId::kSoftmax: return Softmax;
    case OpId::kRmsNorm: return RmsNorm;
    case OpId::kLayerNorm: return LayerNorm;
    case OpId::kAny: return Any;
    case OpId::kMean:
    case OpId::kSum:
    case OpId::kAmax: return Reduce;
    default: return nullptr;
  }
}

}  // namespace dovetail::qnn
