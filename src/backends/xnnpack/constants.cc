// Lowering's constants: data that the graph reads, and filters and biases that XNNPACK packs.
#include <bit>
#include <cfloat>
#include <cstring>

#include "backends/xnnpack/lowering.h"
#include "ops/quantization.h"

namespace dovetail::xnnpack {
namespace {

// Weights below this are stored in the blob, where no table entry and alignment is spent on them.
constexpr size_t kInlineBytes = 1024;

std::vector<std::byte> BytesOf(const std::vector<float>& data) {
  std::vector<std::byte> bytes(data.size() * sizeof(float));
  std::memcpy(bytes.data(), data.data(), bytes.size());
  return bytes;
}

// The elements of a constant of that plain shape with its channels last.
std::vector<std::byte> TurnToChannelsLast(const std::vector<std::byte>& from, const Shape& plain, Shape* turned) {
  const std::vector<size_t> perm = ChannelsLastOrder(plain.rank());
  std::vector<int64_t> strides(perm.size(), 1), at(perm.size(), 0);
  for (size_t i = perm.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * plain[i].value();
  *turned = {};
  for (size_t p : perm) turned->push_back(plain[p]);
  const size_t count = static_cast<size_t>(plain.numel().value()), element = count == 0 ? 1 : from.size() / count;
  std::vector<std::byte> to(from.size());
  for (size_t k = 0; k < count; ++k) {
    int64_t offset = 0;
    for (size_t i = 0; i < perm.size(); ++i) offset += at[i] * strides[perm[i]];
    std::memcpy(to.data() + k * element, from.data() + static_cast<size_t>(offset) * element, element);
    for (size_t i = perm.size(); i-- > 0;) {
      if (++at[i] < (*turned)[i].value()) break;
      at[i] = 0;
    }
  }
  return to;
}

// XNNPACK refuses others while it loads.
bool AllNormal(const std::vector<std::byte>& scales, DType dtype) {
  for (size_t i = 0; i < scales.size() / ByteSize(dtype); ++i) {
    const float s = ReadElement<float>(dtype, scales.data(), static_cast<int64_t>(i));
    if (!(s >= FLT_MIN && s <= FLT_MAX)) return false;
  }
  return true;
}

}  // namespace

std::vector<std::byte> Lowering::DataOf(const Constant& c) {
  if (!c.data_known) Fail(StrCat("the data of constant '", c.name, "' are not known"));
  std::vector<std::byte> bytes(c.nbytes());
  if (c.data_known) c.CopyTo(bytes.data());
  return bytes;
}

std::vector<float> Lowering::FloatsOf(const Constant& c) {
  const std::vector<std::byte> bytes = DataOf(c);
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
  return floats;
}

Id Lowering::ConstantOperand(ValueId v, const Constant& c, Order order) {
  const XnnType xnn_type = TypeOf(v);
  const Shape plain = AtLeastOneDim(c.type.shape);
  if (mode_ == Mode::kCheck) {
    const Id id = NewValue(plain, xnn_type);
    return order == Order::kChannelsLast ? ToChannelsLast(id) : id;
  }
  std::vector<std::byte> data = DataOf(c);
  if (c.type.per_tensor() && in_f32_) {
    std::vector<float> real(data.size());
    for (size_t i = 0; i < data.size(); ++i) real[i] = DequantizeElement(static_cast<int8_t>(data[i]), c.type.quant.scale, c.type.quant.zero_point);
    data = BytesOf(real);
  }
  Shape shape = plain;
  if (order == Order::kChannelsLast && plain.rank() >= 3) data = TurnToChannelsLast(data, plain, &shape);
  else if (order == Order::kChannelsLast) Fail("a tensor without spatial dims");
  const size_t size = data.size();
  return NewConstant(shape, {"", std::move(data), size}, xnn_type);
}

Id Lowering::Number(double v) {
  const float f = static_cast<float>(v);
  if (auto it = numbers_.find(std::bit_cast<uint32_t>(f)); it != numbers_.end()) return it->second;
  return numbers_[std::bit_cast<uint32_t>(f)] = Data(Shape{Dim(1)}, {f});
}

Id Lowering::Data(Shape shape, std::vector<float> data) {
  const size_t size = data.size() * sizeof(float);
  return NewConstant(shape, {"", BytesOf(data), size});
}

const Constant* Lowering::F32Constant(ValueId v) const {
  if (v == kNone || type(v).dtype != DType::kF32) return nullptr;
  return GetConstant(module_, graph_, v);
}

Id Lowering::Weight(const Constant& c) {
  // Names of parameters are the user's: kept apart from keys that lowerings and the program choose.
  const std::string key = "weight:" + c.name;
  if (auto it = weights_.find(key); it != weights_.end()) return it->second;
  if (mode_ == Mode::kCheck) return NewValue(c.type.shape);
  return weights_[key] = NewConstant(c.type.shape, Stored(key, c));
}

Lowering::XnnConstant Lowering::Stored(const std::string& key, const Constant& c) {
  if (!c.data_known) Fail(StrCat("the data of constant '", c.name, "' are not known"));
  XnnConstant data;
  data.size = c.nbytes();
  if (data.size < kInlineBytes) {
    data.bytes.resize(data.size);
    if (c.data_known) c.CopyTo(data.bytes.data());
  } else {
    data.key = key;
    shared_.push_back({key, &c, {}});
  }
  return data;
}

Lowering::XnnConstant Lowering::Stored(const std::string& key, std::vector<std::byte> bytes) {
  XnnConstant data;
  data.size = bytes.size();
  if (data.size < kInlineBytes) {
    data.bytes = std::move(bytes);
  } else {
    data.key = key;
    shared_.push_back({key, nullptr, std::move(bytes)});
  }
  return data;
}

Id Lowering::QuantizedWeight(const Constant& weight, const Constant& scale, Shape shape, int channel_dim, std::string_view suffix,
                             const std::function<std::vector<std::byte>()>& make) {
  const std::string key = StrCat("weight:", weight.name, suffix);
  if (auto it = weights_.find(key); it != weights_.end()) return it->second;
  XnnType type;
  type.channel_dim = channel_dim;
  type.num_scales = static_cast<uint32_t>(scale.type.shape.numel().value());
  if (weight.type.dtype == DType::kU8) {
    type.datatype = xn::XNNDatatype::xnn_datatype_qbint4;
    type.params = xn::XNNQuantParams::PerChannelGroupQuant;
    type.block = weight.type.quant.block;
    if (type.block % 32 != 0) Fail(StrCat("4-bit weights in blocks of ", type.block, "; it takes multiples of 32"));
  } else {
    type.datatype = xn::XNNDatatype::xnn_datatype_qcint8;
    type.params = xn::XNNQuantParams::PerChannelQuant;
  }
  if (scale.data_known && !AllNormal(DataOf(scale), scale.type.dtype)) Fail(StrCat("scales '", scale.name, "' that are not all above zero, normal and finite"));
  if (mode_ == Mode::kCheck) return NewValue(shape, type);
  // The scales of one weight are constants of one value, so they need no table of their own.
  type.scales = static_cast<uint32_t>(constants_.size());
  constants_.push_back(Stored("weight:" + scale.name, scale));
  return weights_[key] = NewConstant(shape, make ? Stored(key, make()) : Stored(key, weight), type);
}

Id Lowering::Weight(std::string key, Shape shape, const std::function<std::vector<float>()>& make) {
  if (auto it = weights_.find(key); it != weights_.end()) return it->second;
  if (mode_ == Mode::kCheck) return NewValue(shape);
  return weights_[key] = NewConstant(shape, Stored(key, BytesOf(make())));
}

Id Lowering::QuantizedBias(const Constant* bias, const Constant& scale, float input_scale) {
  if (!bias) return kNoId;
  // The integers depend on all three, and a key stands for the same contents everywhere in the program.
  const std::string key = StrCat("bias:", bias->name, "/", scale.name, "/", std::bit_cast<uint32_t>(input_scale));
  if (auto it = weights_.find(key); it != weights_.end()) return it->second;
  XnnType type;
  type.datatype = xn::XNNDatatype::xnn_datatype_qcint32;
  type.params = xn::XNNQuantParams::PerChannelQuant;
  type.num_scales = static_cast<uint32_t>(scale.type.shape.numel().value());
  if (mode_ == Mode::kCheck) return NewValue(bias->type.shape, type);
  std::vector<float> scales = FloatsOf(scale);
  const std::vector<float> real = FloatsOf(*bias);
  std::vector<std::byte> integers(real.size() * sizeof(int32_t));
  for (size_t i = 0; i < real.size(); ++i) {
    scales[i] *= input_scale;
    const int32_t q = QuantizeElement(real[i], scales[i], 0, RangeOf(DType::kI32));
    std::memcpy(integers.data() + i * sizeof q, &q, sizeof q);
  }
  type.scales = static_cast<uint32_t>(constants_.size());
  constants_.push_back(Stored(key + "/scale", BytesOf(scales)));
  return weights_[key] = NewConstant(bias->type.shape, Stored(key, std::move(integers)), type);
}

}  // namespace dovetail::xnnpack
