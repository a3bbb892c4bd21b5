#include "passes/stored_weights.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "ir/builder.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

// XNNPACK takes scales above zero that are not denormal.
bool AreUsable(std::span<const double> scales) {
  return std::all_of(scales.begin(), scales.end(), [](double s) { return s >= double{FLT_MIN} && s <= double{FLT_MAX}; });
}

// Whether every number of type `from` is one of `to`.
bool Holds(DType to, DType from) { return ((IsFloat(to) && IsFloat(from)) || (IsInteger(to) && IsInteger(from))) && ByteSize(to) >= ByteSize(from); }

std::string LayoutOf(const Constant& c) {
  std::string layout = c.type.ToString();
  for (int64_t s : c.strides) layout += StrCat(",", s);
  return layout;
}

// Row i of a matrix of i8.
void CopyRow(const Constant& matrix, int64_t i, std::vector<int8_t>& row) {
  Constant one = matrix;
  one.type.shape[0] = 1;
  one.offset += i * matrix.strides[0];
  row.resize(one.nbytes());
  one.CopyTo(reinterpret_cast<std::byte*>(row.data()));
}

// A constant that CopyRow can read: no recipe, of which rows cannot be made alone.
bool IsPlainI8(const Constant& c) {
  return c.data_known && !c.recipe && c.type.dtype == DType::kI8 && c.stored == DType::kI8 && c.type.quant == QuantParams();
}

template <class T>
std::vector<std::byte> BytesOf(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

const Constant* ConstantBehind(const Module& module, const Graph& g, ValueId v) {
  if (v == kNone) return nullptr;
  for (const Node* n = g.producer(v); n && (n->op == OpId::kView || n->op == OpId::kToDtype); n = g.producer(v)) {
    if (!Holds(g.type(v).dtype, g.type(n->operands[0]).dtype)) return nullptr;
    v = n->operands[0];
  }
  const Constant* c = GetConstant(module, g, v);
  return c && c->data_known ? c : nullptr;
}

std::optional<std::vector<double>> NumbersOf(const Module& module, const Graph& graph, ValueId v) {
  const Constant* c = ConstantBehind(module, graph, v);
  if (!c || c->type.dtype == DType::kNone || IsComplex(c->type.dtype)) return std::nullopt;
  std::vector<std::byte> bytes(c->nbytes());
  c->CopyTo(bytes.data());
  std::vector<double> numbers(static_cast<size_t>(c->type.shape.numel().value()));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = ReadElement<double>(c->type.dtype, bytes.data(), static_cast<int64_t>(i));
  return numbers;
}

std::optional<double> NumberOf(const Module& module, const Graph& graph, ValueId v) {
  if (v == kNone || graph.type(v).shape.numel() != Dim(1)) return std::nullopt;
  const auto numbers = NumbersOf(module, graph, v);
  return numbers && numbers->size() == 1 ? std::optional(numbers->front()) : std::nullopt;
}

StoredWeight StoredWeights::Add(Key key, Constant integers, TensorType scale_type, std::vector<std::byte> scales) {
  const std::string name = integers.name;
  StoredWeight w;
  integers.name = UniqueConstantName(module_, StrCat(name, ".int", static_cast<int>(integers.type.quant.bits)));
  w.data = static_cast<uint32_t>(module_.constants.size());
  module_.constants.push_back(std::move(integers));
  w.scale = static_cast<uint32_t>(module_.constants.size());
  module_.constants.push_back(MakeOwnedConstant(UniqueConstantName(module_, name + ".scale"), std::move(scale_type), std::move(scales)));
  made_.emplace(std::move(key), w);
  return w;
}

std::optional<StoredWeight> StoredWeights::PerChannel(const Constant& integers, std::span<const double> scales, const void* scales_identity, int axis) {
  const Shape& shape = integers.type.shape;
  if (!IsPlainI8(integers) || static_cast<size_t>(axis) >= shape.rank()) return std::nullopt;
  const int64_t channels = shape[static_cast<size_t>(axis)].value();
  if (!AreUsable(scales) || (scales.size() != 1 && static_cast<int64_t>(scales.size()) != channels)) return std::nullopt;
  Key key{integers.identity(), LayoutOf(integers), scales_identity, scales.empty() ? 0 : scales[0], axis};
  if (auto it = made_.find(key); it != made_.end()) return it->second;
  std::vector<float> f(scales.begin(), scales.end());
  if (f.size() == 1) f.assign(static_cast<size_t>(channels), f[0]);
  Constant q = integers;
  q.type.quant = QuantParams::PerChannel(axis);
  return Add(std::move(key), std::move(q), TensorType(DType::kF32, {Dim(channels)}), BytesOf(f));
}

std::optional<StoredWeight> StoredWeights::PerBlock(const Constant& integers, std::span<const double> scales, const void* scales_identity, int64_t block) {
  if (!IsPlainI8(integers) || block % 32 != 0 || !AreUsable(scales)) return std::nullopt;
  const int64_t rows = integers.type.shape[0].value(), columns = integers.type.shape[1].value();
  Key key{integers.identity(), LayoutOf(integers), scales_identity, scales.empty() ? 0 : scales[0], -static_cast<int>(block)};
  if (auto it = made_.find(key); it != made_.end()) return it->second;
  std::vector<int8_t> row;
  for (int64_t r = 0; r < rows; ++r) {
    CopyRow(integers, r, row);
    if (std::any_of(row.begin(), row.end(), [](int8_t q) { return q < -8 || q > 7; })) return std::nullopt;
  }
  std::vector<uint16_t> bf16;
  bf16.reserve(scales.size());
  for (double s : scales) bf16.push_back(FloatToBFloat16(static_cast<float>(s)));
  if (std::any_of(bf16.begin(), bf16.end(), [](uint16_t s) { return !std::isfinite(BFloat16ToFloat(s)); })) return std::nullopt;
  auto recipe = [source = integers, rows](std::byte* to) {
    uint8_t* packed = reinterpret_cast<uint8_t*>(to);
    std::vector<int8_t> from;
    for (int64_t r = 0; r < rows; ++r) {
      CopyRow(source, r, from);
      for (size_t k = 0; k + 1 < from.size(); k += 2) *packed++ = static_cast<uint8_t>((from[k] + 8) | ((from[k + 1] + 8) << 4));
    }
  };
  const TensorType type(DType::kU8, {Dim(rows), Dim(columns / 2)}, QuantParams::PerBlock(static_cast<int>(block), 4));
  const TensorType scale_type(DType::kBF16, {Dim(rows), Dim(columns / block)});
  return Add(std::move(key), MakeRecipeConstant(integers.name, type, std::move(recipe)), scale_type, BytesOf(bf16));
}

std::optional<StoredWeight> StoredWeights::Find(const Graph& graph, ValueId v, int axis) {
  const Node* n = v == kNone ? nullptr : graph.producer(v);
  if (!n || (n->op != OpId::kDequantizeAffine && n->op != OpId::kDequantize)) return std::nullopt;
  const Constant* integers = GetConstant(module_, graph, n->operands[0]);
  if (!integers || !integers->data_known || integers->type.quant != QuantParams()) return std::nullopt;
  if (n->op == OpId::kDequantize) {
    const double scale[] = {GetAttr(*n, "scale").Number()};
    if (GetAttr(*n, "zero_point").Int() != 0) return std::nullopt;
    return PerChannel(*integers, scale, nullptr, axis);
  }
  const auto scales = NumbersOf(module_, graph, n->operands[1]);
  if (!scales) return std::nullopt;
  if (n->operands[2] != kNone) {
    const auto zero_points = NumbersOf(module_, graph, n->operands[2]);
    if (!zero_points || std::any_of(zero_points->begin(), zero_points->end(), [](double z) { return z != 0; })) return std::nullopt;
  }
  const void* identity = ConstantBehind(module_, graph, n->operands[1])->identity();
  const std::vector<Dim>& block = GetAttr(*n, "block_size").Dims();
  const Shape& shape = integers->type.shape;
  if (block.size() != shape.rank() || static_cast<size_t>(axis) >= shape.rank()) return std::nullopt;
  bool whole = true;  // in all dims but the axis
  for (size_t d = 0; d < shape.rank(); ++d) whole = whole && (d == static_cast<size_t>(axis) || block[d] == shape[d]);
  const Dim along = block[static_cast<size_t>(axis)];
  if (whole && (along == Dim(1) || along == shape[static_cast<size_t>(axis)])) return PerChannel(*integers, *scales, identity, axis);
  if (axis == 0 && shape.rank() == 2 && block[0] == Dim(1) && block[1].is_constant()) return PerBlock(*integers, *scales, identity, block[1].value());
  return std::nullopt;
}

std::vector<float> BiasOnGrid(std::span<const float> bias, float input_scale, std::span<const float> weight_scales) {
  std::vector<float> rounded;
  rounded.reserve(bias.size());
  for (size_t n = 0; n < bias.size(); ++n) {
    const double step = static_cast<double>(input_scale) * static_cast<double>(weight_scales[weight_scales.size() == 1 ? 0 : n]);
    const double q = std::clamp(std::nearbyint(static_cast<double>(bias[n]) / step), -0x1p31, 0x1p31 - 1);
    rounded.push_back(static_cast<float>(q * step));
  }
  return rounded;
}

}  // namespace dovetail
