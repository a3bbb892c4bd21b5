// Operators of models that were quantized in PyTorch: quantized_decomposed (PT2E), torchao, and the integer product that torchao spells out.
// Each keeps its exact meaning, as an operator over blocks of its own (ops/affine.h); recover_quantized makes quantized layers of them.
#include <cfloat>

#include "import/rules.h"
#include "ops/infer_util.h"
#include "ops/quantization.h"

namespace dovetail::pt2 {
namespace {

// Blocks, as sizes along each dim.

std::vector<Dim> WholeTensor(Call& c, ValueId x) { return DimsOf(c.shape(x)); }
std::vector<Dim> EachChannel(Call& c, ValueId x) {
  std::vector<Dim> block = DimsOf(c.shape(x));
  const size_t axis = c.Axis(c.Int("axis"), block.size());
  if (axis < block.size()) block[axis] = 1;
  return block;
}
std::vector<Dim> EachRow(Call& c, ValueId x) {
  std::vector<Dim> block(c.shape(x).rank(), 1);
  if (!block.empty()) block.back() = c.shape(x).back();
  return block;
}
std::vector<Dim> EachGroup(Call& c, ValueId x) {
  std::vector<Dim> block(c.shape(x).rank(), 1);
  if (!block.empty()) block.back() = c.Int("group_size");
  return block;
}
std::vector<Dim> Blocks(Call& c, ValueId x) {
  std::vector<Dim> block = c.SymInts("block_size");
  for (size_t d = 0; d < block.size() && d < c.shape(x).rank(); ++d)
    if (block[d] == Dim(-1)) block[d] = c.shape(x)[d];
  return block;
}

// A scale or zero point that choose_qparams_affine gave, as it gave it: the conversions and views in between lose nothing. Else `v` itself.
ValueId Chosen(Call& c, ValueId v) {
  ValueId at = v;
  for (const Node* n = c.Producer(at); n && (n->op == OpId::kView || n->op == OpId::kToDtype); n = c.Producer(at)) at = n->operands[0];
  const Node* n = c.Producer(at);
  return n && n->op == OpId::kChooseQparamsAffine ? at : v;
}
ValueId Scale(Call& c, std::string_view name) {
  return Chosen(c, c.IsTensor(name) ? c.Tensor(name) : c.Number(name, DType::kF32));
}
ValueId ZeroPoint(Call& c, std::string_view name) {
  if (!c.Has(name)) return kNone;
  const ValueId v = c.IsTensor(name) ? c.Tensor(name) : c.Number(name, DType::kI32);
  if (c.ok() && IsFloat(c.type(v).dtype)) c.Fail(Unsupported("zero points of ", Name(c.type(v).dtype), "; only integers"));
  return Chosen(c, v);
}

struct Bounds {
  DType dtype;
  int64_t min, max;
};
Bounds BoundsOf(Call& c, std::string_view dtype_name) {
  const DType dtype = c.Type(dtype_name, DType::kI8);
  const IntegerRange range = RangeOf(dtype);
  const auto bound = [&](std::string_view name, int32_t otherwise) {
    if (!c.Has(name)) return static_cast<int64_t>(otherwise);
    const Attr number = c.Scalar(name);
    return static_cast<int64_t>(number.Number());
  };
  return {dtype, bound("quant_min", range.min), bound("quant_max", range.max)};
}

using BlockFn = std::vector<Dim> (*)(Call&, ValueId);
struct Names {
  std::string_view scale, zero_point, dtype, real_dtype;
};

void Quantize(Call& c, BlockFn blocks, const Names& names) {
  const ValueId x = c.Convert(c.Tensor("input"), DType::kF32);
  const Bounds to = BoundsOf(c, names.dtype);
  if (!c.ok()) return;
  c.Return(c.Emit(OpId::kQuantizeAffine, {x, Scale(c, names.scale), ZeroPoint(c, names.zero_point)},
                  {{"block_size", blocks(c, x)}, {"quant_min", to.min}, {"quant_max", to.max}, {"out_dtype", to.dtype}}));
}

// The bounds do not matter: no stored integer is beyond them.
void Dequantize(Call& c, BlockFn blocks, const Names& names) {
  const ValueId q = c.Tensor("input");
  if (!c.ok()) return;
  const ValueId x = c.Emit(OpId::kDequantizeAffine, {q, Scale(c, names.scale), ZeroPoint(c, names.zero_point)}, {{"block_size", blocks(c, q)}});
  c.Return(c.Convert(x, c.Type(names.real_dtype, DType::kF32)));
}

constexpr Names kPerTensor = {"scale", "zero_point", "dtype", "out_dtype"};
constexpr Names kPerChannel = {"scales", "zero_points", "dtype", "out_dtype"};
constexpr Names kPerToken = {"scales", "zero_points", "dtype", "output_dtype"};
constexpr Names kQuantizeAffine = {"scale", "zero_point", "output_dtype", ""};
constexpr Names kDequantizeAffine = {"scale", "zero_point", "", "output_dtype"};

struct Choice {
  std::string mapping;
  std::vector<Dim> block;
  int64_t min, max;
  double eps;
};
std::vector<ValueId> Choose(Call& c, ValueId x, Choice choice) {
  return c.EmitAll(OpId::kChooseQparamsAffine, {x}, {{"block_size", std::move(choice.block)},
                                                     {"mapping_type", std::move(choice.mapping)},
                                                     {"quant_min", choice.min},
                                                     {"quant_max", choice.max},
                                                     {"eps", choice.eps}});
}

// quantized_decomposed gives f64 and i64.
void ReturnWide(Call& c, const std::vector<ValueId>& params, std::vector<Dim> sizes) {
  c.Return(c.Convert(c.Reshape(params[0], sizes), DType::kF64));
  c.Return(c.Convert(c.Reshape(params[1], sizes), DType::kI64));
}
void ChooseForTensor(Call& c, std::string mapping) {
  const ValueId x = c.Convert(c.Tensor("input"), DType::kF32);
  const Bounds to = BoundsOf(c, "dtype");
  if (!c.ok()) return;
  ReturnWide(c, Choose(c, x, {std::move(mapping), WholeTensor(c, x), to.min, to.max, c.Float("eps", static_cast<double>(FLT_EPSILON))}), {1});
}
void ChooseForRows(Call& c, std::string mapping, int64_t min, double eps) {
  const ValueId x = c.Convert(c.Tensor("input"), DType::kF32);
  if (!c.ok()) return;
  std::vector<Dim> sizes = DimsOf(c.shape(x));
  if (!sizes.empty()) sizes.back() = 1;
  ReturnWide(c, Choose(c, x, {std::move(mapping), EachRow(c, x), min, 127, eps}), std::move(sizes));
}

void ChooseAffine(Call& c) {
  const ValueId x = c.Convert(c.Tensor("input"), DType::kF32);
  const Bounds to = BoundsOf(c, "target_dtype");
  const std::string_view given = c.String("mapping_type", "");
  const std::string mapping = given == "ASYMMETRIC"                  ? "asymmetric"
                              : given == "SYMMETRIC"                 ? "symmetric"
                              : given == "SYMMETRIC_NO_CLIPPING_ERR" ? "symmetric_no_clipping_err"
                                                                     : "";
  if (c.ok() && mapping.empty()) c.Fail(Unsupported("the mapping '", given, "'"));
  const std::vector<Dim> block = Blocks(c, x);
  if (!c.ok()) return;
  const std::vector<ValueId> params = Choose(c, x, {mapping, block, to.min, to.max, c.Float("eps", static_cast<double>(FLT_MIN))});
  if (!c.ok()) return;
  // Without keepdim, the dims that a block spans are gone.
  std::vector<Dim> sizes;
  const Shape shape = c.shape(x), grid = c.shape(params[0]);
  for (size_t d = 0; d < grid.rank(); ++d)
    if (c.Bool("keepdim", false) || block[d] != shape[d] || block[d] == Dim(1)) sizes.push_back(grid[d]);
  c.Return(c.Convert(c.Reshape(params[0], sizes), c.Type("scale_dtype", c.type(c.Tensor("input")).dtype)));
  c.Return(c.Convert(c.Reshape(params[1], sizes), c.Type("zero_point_dtype", DType::kI32)));
}

// u8 or i8 times i8, summed in i32.
void IntMm(Call& c) {
  const ValueId a = c.Convert(c.Tensor("self"), DType::kI32), b = c.Convert(c.Tensor("mat2"), DType::kI32);
  c.Return(c.Emit(OpId::kMatmul, {a, b}));
}

constexpr Rule kRules[] = {
    {"quantized_decomposed.quantize_per_tensor.default", [](Call& c) { Quantize(c, WholeTensor, kPerTensor); }},
    {"quantized_decomposed.quantize_per_tensor.tensor", [](Call& c) { Quantize(c, WholeTensor, kPerTensor); }},
    {"quantized_decomposed.dequantize_per_tensor.default", [](Call& c) { Dequantize(c, WholeTensor, kPerTensor); }},
    {"quantized_decomposed.dequantize_per_tensor.tensor", [](Call& c) { Dequantize(c, WholeTensor, kPerTensor); }},
    {"quantized_decomposed.quantize_per_channel.default", [](Call& c) { Quantize(c, EachChannel, kPerChannel); }},
    {"quantized_decomposed.dequantize_per_channel.default", [](Call& c) { Dequantize(c, EachChannel, kPerChannel); }},
    {"quantized_decomposed.quantize_per_token.default", [](Call& c) { Quantize(c, EachRow, kPerToken); }},
    {"quantized_decomposed.dequantize_per_token.default", [](Call& c) { Dequantize(c, EachRow, kPerToken); }},
    {"quantized_decomposed.quantize_per_channel_group.default", [](Call& c) { Quantize(c, EachGroup, kPerToken); }},
    {"quantized_decomposed.dequantize_per_channel_group.default", [](Call& c) { Dequantize(c, EachGroup, kPerToken); }},
    {"quantized_decomposed.choose_qparams.tensor", [](Call& c) { ChooseForTensor(c, "asymmetric"); }},
    {"quantized_decomposed.choose_qparams_symmetric.tensor", [](Call& c) { ChooseForTensor(c, "symmetric"); }},
    {"quantized_decomposed.choose_qparams_per_token.default", [](Call& c) { ChooseForRows(c, "symmetric", -127, 1e-5 / 127); }},
    {"quantized_decomposed.choose_qparams_per_token_asymmetric.default",
     [](Call& c) { ChooseForRows(c, "asymmetric_least_error", -128, static_cast<double>(FLT_EPSILON)); }},
    {"quantized_decomposed._choose_qparams_per_token_asymmetric_impl.default",
     [](Call& c) { ChooseForRows(c, "asymmetric_least_error", -128, static_cast<double>(FLT_EPSILON)); }},
    {"torchao.choose_qparams_affine.default", ChooseAffine},
    {"torchao.quantize_affine.default", [](Call& c) { Quantize(c, Blocks, kQuantizeAffine); }},
    {"torchao.dequantize_affine.default", [](Call& c) { Dequantize(c, Blocks, kDequantizeAffine); }},
    {"aten._int_mm.default", IntMm},
};

}  // namespace

const std::span<const Rule> kQuantizedRules = kRules;

}  // namespace dovetail::pt2
