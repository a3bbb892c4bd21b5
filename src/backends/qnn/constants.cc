// Constants: weights, biases, tables.
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "backends/qnn/lowering.h"
#include "ops/dispatch.h"

namespace dovetail::qnn {
namespace {

// Elements of `width` bytes, turned to the order of dims that `perm` names.
std::vector<std::byte> Permuted(const std::vector<std::byte>& from, const Dims& dims, const std::vector<uint32_t>& perm, size_t width) {
  std::vector<std::byte> to(from.size());
  std::vector<size_t> stride(dims.size(), 1), step(dims.size()), index(dims.size(), 0);
  for (size_t i = dims.size() - 1; i-- > 0;) stride[i] = stride[i + 1] * dims[i + 1];
  for (size_t i = 0; i < dims.size(); ++i) step[i] = stride[perm[i]];
  for (size_t n = 0; n < Numel(dims); ++n) {
    size_t source = 0;
    for (size_t i = 0; i < dims.size(); ++i) source += index[i] * step[i];
    std::memcpy(to.data() + n * width, from.data() + source * width, width);
    for (size_t i = dims.size(); i-- > 0;) {
      if (++index[i] < dims[perm[i]]) break;
      index[i] = 0;
    }
  }
  return to;
}

}  // namespace

void Lowering::SetData(TensorData& t, const std::function<std::vector<std::byte>()>& make) {
  const uint64_t size = Numel(t.dims) * Width(t.type.data_type);
  if (size > UINT32_MAX) return Fail(StrCat("the constant '", t.name, "' of ", size, " bytes; it takes less than 4 GiB"));
  if (failed()) return;
  if (checking() && size > 4096) {
    // The library looks at types, not at large weights.
    t.zeros = {std::calloc(size, 1), std::free};
    t.abi.v1.buffer = {t.zeros.get(), static_cast<uint32_t>(size)};
    if (!t.zeros) Fail("out of memory");
    return;
  }
  t.data = make();
  if (t.data.size() != size) return Fail(StrCat("constant '", t.name, "' has ", t.data.size(), " bytes in place of ", size));
  t.abi.v1.buffer = {t.data.data(), static_cast<uint32_t>(size)};
}

Id Lowering::Static(Dims dims, QnnType type, const std::function<std::vector<std::byte>()>& make) {
  const Id id = NewTensor("c", std::move(dims), type, abi::TensorKind::kStatic);
  SetData(tensors_[id], make);
  return id;
}

Id Lowering::StaticInts(Dims dims, const std::vector<int32_t>& values) {
  return Static(std::move(dims), kInt32, [&] { return Bytes(values); });
}

Id Lowering::Once(const std::string& key, const std::function<Id()>& make) {
  if (const auto it = once_.find(key); it != once_.end()) return it->second;
  const Id id = make();
  once_.emplace(key, id);
  return id;
}

std::string KeyOf(const Lowering& l, const Constant& weight, const Constant& scale, std::string_view layout) {
  const Constant* first = l.module().constants.data();
  return StrCat(layout, " ", &weight - first, " ", &scale - first);
}

Id Lowering::Weight(const QnnWeight& w, std::string_view name) {
  const Id id = NewTensor(std::string(name), w.dims, {abi::DataType::kSfixed8}, abi::TensorKind::kStatic);
  TensorData& t = tensors_[id];
  abi::QuantizeParams& q = t.abi.v1.quantize;
  q.definition = abi::kQuantizeDefined;
  for (float s : w.scales) t.scales.push_back({s, 0});
  const uint32_t channels = static_cast<uint32_t>(w.scales.size());
  if (!w.block_factors.empty()) {
    t.factors = w.block_factors;
    t.blocks = {w.axis, t.scales.data(), static_cast<uint32_t>(t.factors.size() / channels), 4, 0, {t.factors.data()}};
    q.encoding = abi::Encoding::kBlockwiseExpansion;
    q.blockwise = &t.blocks;
  } else if (w.bits == 4) {
    t.bw_scales = w.scales;
    q.encoding = abi::Encoding::kBwAxisScaleOffset;
    q.bw_axis = {4, w.axis, channels, t.bw_scales.data(), nullptr};
  } else {
    q.encoding = abi::Encoding::kAxisScaleOffset;
    q.axis = {w.axis, channels, t.scales.data()};
  }
  SetData(t, w.make);
  return id;
}

Id Lowering::Bias(const Constant& bias, float input_scale, const std::vector<float>& scales) {
  const std::vector<float> real = FloatsOf(bias);
  if (real.size() != scales.size()) {
    Fail("a bias of another length than its weight");
    return kNoId;
  }
  const Id id = NewTensor(bias.name, {static_cast<uint32_t>(real.size())}, {abi::DataType::kSfixed32}, abi::TensorKind::kStatic);
  TensorData& t = tensors_[id];
  std::vector<int32_t> integers(real.size());
  for (size_t i = 0; i < real.size(); ++i) {
    t.scales.push_back({input_scale * scales[i], 0});
    const double steps = std::nearbyint(static_cast<double>(real[i]) / static_cast<double>(t.scales[i].scale));
    if (!(std::abs(steps) < 0x1p31)) Fail("a bias too large for its layer's scales");
    else integers[i] = static_cast<int32_t>(steps);
  }
  t.abi.v1.quantize.definition = abi::kQuantizeDefined;
  t.abi.v1.quantize.encoding = abi::Encoding::kAxisScaleOffset;
  t.abi.v1.quantize.axis = {0, static_cast<uint32_t>(t.scales.size()), t.scales.data()};
  SetData(t, [&] { return Bytes(integers); });
  return id;
}

std::vector<std::byte> Lowering::DataOf(const Constant& c) {
  std::vector<std::byte> data(c.nbytes());
  if (c.data_known) c.CopyTo(data.data());
  else Fail(StrCat("constant '", c.name, "' without data"));
  return data;
}

std::vector<float> Lowering::FloatsOf(const Constant& c) {
  std::vector<float> values(c.nbytes() / sizeof(float));
  if (c.type.dtype != DType::kF32) {
    Fail(StrCat("constant '", c.name, "' is not of f32"));
    return values;
  }
  if (c.data_known) c.CopyTo(reinterpret_cast<std::byte*>(values.data()));
  else Fail(StrCat("constant '", c.name, "' without data"));
  return values;
}

std::vector<std::byte> Lowering::Narrowed(const Constant& c) {
  const std::vector<std::byte> data = DataOf(c);
  std::vector<int32_t> values(data.size() / sizeof(int64_t));
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t wide = ReadElement<int64_t>(c.type.dtype, data.data(), static_cast<int64_t>(i));
    if (wide != static_cast<int32_t>(wide)) Fail(StrCat("constant '", c.name, "' has a number beyond 32 bits"));
    values[i] = static_cast<int32_t>(wide);
  }
  return Bytes(values);
}

Id Lowering::ConstantIn(ValueId v, const Constant& c, Order order) {
  Dims dims = DimsOf(v);
  const QnnType type = TypeOf(v);
  const bool narrow = c.type.dtype == DType::kI64;
  const bool turn = order == Order::kChannelsLast;
  if (turn)
    while (dims.size() < 4) dims.insert(dims.begin(), 1);
  const Dims plain = dims;
  if (turn) dims = {plain[0], plain[2], plain[3], plain[1]};
  const Id id = NewTensor(c.name.empty() ? "c" : c.name, dims, type, abi::TensorKind::kStatic);
  // That they fit is part of the check, so these are made while checking too.
  const std::vector<std::byte> narrowed = narrow ? Narrowed(c) : std::vector<std::byte>();
  SetData(tensors_[id], [&] {
    std::vector<std::byte> data = narrow ? narrowed : DataOf(c);
    return turn ? Permuted(data, plain, ToChannelsLast(4), Width(type.data_type)) : data;
  });
  return id;
}

}  // namespace dovetail::qnn
