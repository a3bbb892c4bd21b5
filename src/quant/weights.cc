#include "quant/weights.h"

#include <cfloat>
#include <cstring>

#include "ir/builder.h"
#include "ops/quantization.h"

namespace dovetail {
namespace {

std::vector<std::byte> BytesOf(const void* data, size_t size) {
  std::vector<std::byte> bytes(size);
  if (size) std::memcpy(bytes.data(), data, size);
  return bytes;
}

// The channel of each element of a row of dim 0, when channels run along `axis` > 0: i / inner % channels.
struct ChannelOf {
  int64_t channels, inner;
  int64_t operator()(int64_t i) const { return i / inner % channels; }
  static ChannelOf Along(const Shape& shape, int axis) {
    int64_t inner = 1;
    for (size_t d = static_cast<size_t>(axis) + 1; d < shape.rank(); ++d) inner *= shape[d].value();
    return {shape[static_cast<size_t>(axis)].value(), inner};
  }
};

// A scale that XNNPACK takes: above zero and not denormal. Channels of zeros have any.
float UsableScale(float scale) { return scale == 0 ? 1.0f : std::max(scale, FLT_MIN); }

int8_t RoundTo(float w, float scale, int bits) {
  return static_cast<int8_t>(QuantizeElement(w, scale, 0, bits == 4 ? IntegerRange{-8, 7} : IntegerRange{-127, 127}));
}

}  // namespace

float BlockScale(std::span<const float> w) {
  float min = 0, max = 0, check = 0;
  for (float v : w) {
    check += v * 0;
    min = std::min(min, v);
    max = std::max(max, v);
  }
  return check == 0 ? std::max(min / -8, max / 7) : NAN;
}

namespace {

// Of the scale that reaches all and max|w| / 7.5, which clips one end by half a step, the one with the smaller sum of cubed errors. Squares
// choose to clip more, which costs SmolLM2 more perplexity than it gains MiniLM in cosine (docs/benchmarks.md has both).
float NearestScale(std::span<const float> w) {
  const float whole = BlockScale(w);
  if (!(whole > 0) || !std::isfinite(whole)) return whole;
  float most = 0;
  for (float v : w) most = std::max(most, std::abs(v));
  const auto error = [&](float scale) {
    scale = BFloat16ToFloat(FloatToBFloat16(UsableScale(scale)));
    double sum = 0;
    for (float v : w) {
      const double e = static_cast<double>(v - static_cast<float>(QuantizeElement(v, scale, 0, {-8, 7})) * scale);
      sum += std::abs(e * e * e);
    }
    return sum;
  };
  return error(most / 7.5f) < error(whole) ? most / 7.5f : whole;
}

}  // namespace

bool AllFinite(std::span<const float> values) {
  float check = 0;
  for (float v : values) check += v * 0;
  return check == 0;
}

Status NotFinite(const Constant& weight) {
  return InvalidArgument("the weight '", weight.name, "' has a value that is not finite (NaN or infinity), which no integer can stand for")
      .While("quantizing; leave its layer in float with --keep-float, or repair the weights before exporting");
}

FloatRows::FloatRows(const Constant& c) : constant_(c), rows_(c.type.shape.empty() ? 1 : c.type.shape[0].value()) {
  width_ = rows_ == 0 ? 0 : c.type.shape.numel().value() / rows_;
}

std::span<const float> FloatRows::row(int64_t i) {
  const size_t width = static_cast<size_t>(width_);
  if (constant_.contiguous() && constant_.type.dtype == DType::kF32)
    return {reinterpret_cast<const float*>(constant_.bytes().data()) + static_cast<size_t>(i) * width, width};
  buffer_.resize(width);
  Constant row = constant_;
  row.type.dtype = DType::kF32;
  if (!row.type.shape.empty()) {
    row.type.shape[0] = 1;
    row.offset += i * row.strides[0];
  }
  row.CopyTo(reinterpret_cast<std::byte*>(buffer_.data()));
  return buffer_;
}

WeightQuantizer::Key WeightQuantizer::KeyOf(const Constant& c, int bits, int axis) const {
  std::string layout = c.type.ToString();
  for (int64_t s : c.strides) layout += StrCat(",", s);
  return {c.identity(), std::move(layout), bits, axis};
}

WeightQuantizer::Key WeightQuantizer::KeyOf(const Constant& c, int bits, int axis, std::span<const float> scales) const {
  Key key = KeyOf(c, bits, axis);
  std::get<1>(key).append(reinterpret_cast<const char*>(scales.data()), scales.size() * sizeof(float));
  return key;
}

Result<QuantizedWeight> WeightQuantizer::Add(uint32_t constant, TensorType type, std::function<void(std::byte*)> recipe, TensorType scale_type,
                                             std::vector<std::byte> scales) {
  const std::string name = module_.constants[constant].name;
  QuantizedWeight w;
  w.data = static_cast<uint32_t>(module_.constants.size());
  module_.constants.push_back(MakeRecipeConstant(UniqueConstantName(module_, StrCat(name, ".int", static_cast<int>(type.quant.bits))), std::move(type), std::move(recipe)));
  w.scale = static_cast<uint32_t>(module_.constants.size());
  module_.constants.push_back(MakeOwnedConstant(UniqueConstantName(module_, name + ".scale"), std::move(scale_type), std::move(scales)));
  return w;
}

Result<std::vector<float>> WeightQuantizer::ChannelScales(uint32_t constant, int axis) {
  const Constant& source = module_.constants[constant];
  const Key key = KeyOf(source, 8, axis);
  if (auto it = scales_.find(key); it != scales_.end()) return it->second;
  FloatRows rows(source);
  const ChannelOf channel_of = ChannelOf::Along(source.type.shape, axis);
  std::vector<float> scales(static_cast<size_t>(channel_of.channels), 0);
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const std::span<const float> row = rows.row(r);
    float most = 0, check = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      check += row[i] * 0;
      if (axis == 0) most = std::max(most, std::abs(row[i]));
      else if (float& s = scales[static_cast<size_t>(channel_of(static_cast<int64_t>(i)))]; std::abs(row[i]) > s) s = std::abs(row[i]);
    }
    if (check != 0) return NotFinite(source);
    if (axis == 0) scales[static_cast<size_t>(r)] = most;
  }
  for (float& s : scales) s /= 127;
  return scales_[key] = std::move(scales);
}

Result<QuantizedWeight> WeightQuantizer::PerChannel(uint32_t constant, int axis) {
  DT_ASSIGN_OR_RETURN(std::vector<float> scales, ChannelScales(constant, axis));
  return PerChannel(constant, axis, std::move(scales));
}

Result<QuantizedWeight> WeightQuantizer::PerChannel(uint32_t constant, int axis, std::vector<float> scales, int bits) {
  for (float& s : scales) s = UsableScale(s);
  const Constant source = module_.constants[constant];
  const Key key = KeyOf(source, bits, axis, scales);
  if (auto it = made_.find(key); it != made_.end()) return it->second;
  const Shape& shape = source.type.shape;
  const ChannelOf channel_of = ChannelOf::Along(shape, axis);
  auto recipe = [source, scales, channel_of, axis, bits](std::byte* to) {
    FloatRows from(source);
    int8_t* q = reinterpret_cast<int8_t*>(to);
    for (int64_t r = 0; r < from.rows(); ++r) {
      const std::span<const float> row = from.row(r);
      for (size_t i = 0; i < row.size(); ++i) *q++ = RoundTo(row[i], scales[static_cast<size_t>(axis == 0 ? r : channel_of(static_cast<int64_t>(i)))], bits);
    }
  };
  DT_ASSIGN_OR_RETURN(made_[key], Add(constant, TensorType(DType::kI8, shape, QuantParams::PerChannel(axis, bits)), std::move(recipe),
                                      TensorType(DType::kF32, {Dim(channel_of.channels)}), BytesOf(scales.data(), scales.size() * sizeof(float))));
  return made_[key];
}

void WeightQuantizer::SetPerChannel(uint32_t constant, int axis, std::vector<float> scales, int bits, std::vector<int8_t> integers) {
  for (float& s : scales) s = UsableScale(s);
  const Constant source = module_.constants[constant];
  QuantizedWeight w;
  w.data = static_cast<uint32_t>(module_.constants.size());
  module_.constants.push_back(MakeOwnedConstant(UniqueConstantName(module_, StrCat(source.name, ".int", bits)),
                                                TensorType(DType::kI8, source.type.shape, QuantParams::PerChannel(axis, bits)),
                                                BytesOf(integers.data(), integers.size())));
  w.scale = static_cast<uint32_t>(module_.constants.size());
  module_.constants.push_back(MakeOwnedConstant(UniqueConstantName(module_, source.name + ".scale"),
                                                TensorType(DType::kF32, {source.type.shape[static_cast<size_t>(axis)]}),
                                                BytesOf(scales.data(), scales.size() * sizeof(float))));
  made_[KeyOf(source, bits, axis, scales)] = w;
}

Result<QuantizedWeight> WeightQuantizer::PerBlock(uint32_t constant, int block) {
  const Constant source = module_.constants[constant];
  const Key key = KeyOf(source, 4, block);
  if (auto it = made_.find(key); it != made_.end()) return it->second;
  FloatRows rows(source);
  const size_t size = static_cast<size_t>(block), blocks = static_cast<size_t>(rows.width()) / size;
  std::vector<uint16_t> scales;
  scales.reserve(static_cast<size_t>(rows.rows()) * blocks);
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const std::span<const float> row = rows.row(r);
    for (size_t b = 0; b < blocks; ++b) {
      const float scale = NearestScale(row.subspan(b * size, size));
      if (!std::isfinite(scale)) return NotFinite(source);
      scales.push_back(FloatToBFloat16(UsableScale(scale)));
    }
  }
  auto recipe = [source, scales, size, blocks](std::byte* to) {
    FloatRows from(source);
    uint8_t* q = reinterpret_cast<uint8_t*>(to);
    const uint16_t* scale = scales.data();
    for (int64_t r = 0; r < from.rows(); ++r) {
      const std::span<const float> row = from.row(r);
      for (size_t b = 0; b < blocks; ++b, ++scale) {
        const float s = BFloat16ToFloat(*scale);
        for (size_t i = b * size; i < (b + 1) * size; i += 2)
          *q++ = static_cast<uint8_t>((QuantizeElement(row[i], s, 0, {-8, 7}) + 8) | ((QuantizeElement(row[i + 1], s, 0, {-8, 7}) + 8) << 4));
      }
    }
  };
  const Dim n = rows.rows();
  DT_ASSIGN_OR_RETURN(made_[key], Add(constant, TensorType(DType::kU8, {n, Dim(rows.width() / 2)}, QuantParams::PerBlock(block, 4)), std::move(recipe),
                                      TensorType(DType::kBF16, {n, Dim(static_cast<int64_t>(blocks))}), BytesOf(scales.data(), scales.size() * 2)));
  return made_[key];
}

Status WeightQuantizer::CheckFinite(uint32_t constant) const {
  FloatRows rows(module_.constants[constant]);
  for (int64_t r = 0; r < rows.rows(); ++r)
    if (!AllFinite(rows.row(r))) return NotFinite(module_.constants[constant]);
  return OkStatus();
}

void WeightQuantizer::SetPerBlock(uint32_t constant, int block, PackedBlocks blocks) {
  const Constant source = module_.constants[constant];
  const Shape& shape = source.type.shape;
  QuantizedWeight w;
  w.data = static_cast<uint32_t>(module_.constants.size());
  module_.constants.push_back(MakeOwnedConstant(UniqueConstantName(module_, source.name + ".int4"),
                                                TensorType(DType::kU8, {shape[0], Dim(shape[1].value() / 2)}, QuantParams::PerBlock(block, 4)),
                                                BytesOf(blocks.data.data(), blocks.data.size())));
  w.scale = static_cast<uint32_t>(module_.constants.size());
  module_.constants.push_back(MakeOwnedConstant(UniqueConstantName(module_, source.name + ".scale"),
                                                TensorType(DType::kBF16, {shape[0], Dim(shape[1].value() / block)}), BytesOf(blocks.scales.data(), blocks.scales.size() * 2)));
  made_[KeyOf(source, 4, block)] = w;
}

uint32_t WeightQuantizer::Transposed(uint32_t constant) {
  if (auto it = transposed_.find(constant); it != transposed_.end()) return it->second;
  Constant t = module_.constants[constant];
  std::swap(t.type.shape[0], t.type.shape[1]);
  std::swap(t.strides[0], t.strides[1]);
  t.name = UniqueConstantName(module_, t.name + ".transposed");
  module_.constants.push_back(std::move(t));
  return transposed_[constant] = static_cast<uint32_t>(module_.constants.size() - 1);
}

}  // namespace dovetail
