#include "backends/xnnpack/lowering.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace dovetail::xnnpack {
namespace {

constexpr size_t kMaxXnnRank = 6;
// Weights below this are stored in the blob, where no table entry and alignment is spent on them.
constexpr size_t kInlineBytes = 1024;

std::vector<std::byte> BytesOf(const std::vector<float>& data) {
  std::vector<std::byte> bytes(data.size() * sizeof(float));
  std::memcpy(bytes.data(), data.data(), bytes.size());
  return bytes;
}

Shape AtLeastOneDim(const Shape& s) { return s.empty() ? Shape{Dim(1)} : s; }

std::vector<size_t> ChannelsLastOrder(size_t rank) {
  std::vector<size_t> perm = {0};
  for (size_t i = 2; i < rank; ++i) perm.push_back(i);
  perm.push_back(1);
  return perm;
}

}  // namespace

Lowering::Lowering(const Module& module, const Graph& graph, Mode mode) : module_(module), graph_(graph), mode_(mode) {}

void Lowering::Fail(std::string reason) {
  if (reason_.empty()) reason_ = std::move(reason);
}

int64_t Lowering::UpperBound(Dim d) {
  const int64_t max = d.Bounds(module_.symbols).max;
  if (max < 0 || max > UINT32_MAX - 1)
    Fail(StrCat("the size ", d.ToString(), " has no upper bound; give its symbol a maximum when exporting"));
  return max;
}

Id Lowering::NewValue(Shape shape, XnnType type) {
  if (shape.rank() > kMaxXnnRank) Fail(StrCat("a tensor of ", shape.rank(), " dims; at most ", kMaxXnnRank));
  for (Dim d : shape) UpperBound(d);
  values_.push_back({shape, 0, kNoId, false, type});
  return static_cast<Id>(values_.size() - 1);
}

Id Lowering::NewConstant(Shape shape, XnnConstant c, XnnType type) {
  const Id id = NewValue(shape, type);
  if (mode_ == Mode::kEmit) {
    values_[id].constant = static_cast<uint32_t>(constants_.size());
    constants_.push_back(std::move(c));
  }
  return id;
}

// Of a value on the way into, inside or out of a region.
XnnType Lowering::TypeOf(ValueId v) {
  const TensorType& t = type(v);
  if (t.per_tensor() && t.dtype == DType::kI8) return XnnType::PerTensor(t.quant.scale, t.quant.zero_point);
  if (t.quant.kind == QuantParams::Kind::kDynamic && graph_.producer_if(v, OpId::kQuantizeDynamic))
    return XnnType::PerRow(static_cast<int32_t>(GetAttr(*graph_.producer(v), "num_nonbatch_dims").Int(1)));
  if (t.dtype != DType::kF32) Fail(StrCat("a tensor of type ", Name(t.dtype), "; only f32 and quantized i8 are supported"));
  return {};
}

Id Lowering::Operand(ValueId v, Order order) {
  if (auto it = bound_.find({v, order}); it != bound_.end()) return it->second;
  const TensorType& t = type(v);
  const XnnType xnn_type = TypeOf(v);
  Id id;
  if (const Constant* c = GetConstant(module_, graph_, v)) {
    id = ConstantOperand(v, *c, order);
  } else if (auto other = bound_.find({v, order == Order::kPlain ? Order::kChannelsLast : Order::kPlain}); other != bound_.end()) {
    id = order == Order::kPlain ? ToPlain(other->second) : ToChannelsLast(other->second);
  } else {
    if (mode_ == Mode::kEmit) Fail(StrCat("value ", v, " is used before it is made"));
    if (t.shape.empty()) Fail("a tensor without dims");
    id = NewValue(AtLeastOneDim(t.shape), xnn_type);
    bound_[{v, Order::kPlain}] = id;
    if (order == Order::kChannelsLast) id = ToChannelsLast(id);
  }
  bound_[{v, order}] = id;
  return id;
}

Id Lowering::ConstantOperand(ValueId v, const Constant& c, Order order) {
  if (mode_ == Mode::kCheck) {
    const Id id = NewValue(AtLeastOneDim(c.type.shape));
    return order == Order::kChannelsLast ? ToChannelsLast(id) : id;
  }
  if (order == Order::kPlain) {
    if (!c.data_known) Fail(StrCat("the data of constant '", c.name, "' are not known"));
    XnnConstant data;
    data.size = c.nbytes();
    data.bytes.resize(data.size);
    if (c.data_known) c.CopyTo(data.bytes.data());
    return NewConstant(AtLeastOneDim(c.type.shape), std::move(data));
  }
  const Id plain = Operand(v, Order::kPlain);
  const std::vector<size_t> perm = ChannelsLastOrder(shape(plain).rank());
  std::vector<int64_t> sizes, strides(perm.size(), 1);
  for (size_t i = perm.size() - 1; i > 0; --i) strides[i - 1] = strides[i] * shape(plain)[i].value();
  Shape last;
  for (size_t p : perm) last.push_back(shape(plain)[p]);
  const std::vector<std::byte> from = constants_[values_[plain].constant].bytes;
  std::vector<std::byte> to(from.size());
  std::vector<int64_t> at(perm.size(), 0);
  for (size_t k = 0; k < to.size(); k += sizeof(float)) {
    int64_t offset = 0;
    for (size_t i = 0; i < perm.size(); ++i) offset += at[i] * strides[perm[i]];
    std::memcpy(to.data() + k, from.data() + static_cast<size_t>(offset) * sizeof(float), sizeof(float));
    for (size_t i = perm.size(); i-- > 0;) {
      if (++at[i] < last[i].value()) break;
      at[i] = 0;
    }
  }
  const size_t size = to.size();
  return NewConstant(last, {"", std::move(to), size});
}

bool Lowering::OnlyChannelsLast(ValueId v) const {
  return bound_.contains({v, Order::kChannelsLast}) && !bound_.contains({v, Order::kPlain});
}

void Lowering::Bind(ValueId v, Id id, Order order) {
  if (const XnnType want = TypeOf(v); !failed() && !(xnn_type(id) == want)) Fail(StrCat("its lowering gives another type than ", type(v).ToString()));
  if (type(v).shape.empty()) Fail("a result without dims");
  if (!failed() && order == Order::kPlain && !(shape(id) == type(v).shape))
    Fail(StrCat("its lowering gives the shape [", shape(id).ToString(), "] for [", type(v).shape.ToString(), "]"));
  bound_[{v, order}] = id;
}

void Lowering::BindInputs() {
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const Id id = NewValue(graph_.type(graph_.inputs[i]).shape, TypeOf(graph_.inputs[i]));
    values_[id].external = static_cast<uint32_t>(i);
    Bind(graph_.inputs[i], id);
  }
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

Id Lowering::QuantizedWeight(const Constant& weight, const Constant& scale, Shape shape, int channel_dim, std::string_view suffix,
                             const std::function<std::vector<std::byte>()>& make) {
  const std::string key = StrCat("weight:", weight.name, suffix);
  if (auto it = weights_.find(key); it != weights_.end()) return it->second;
  XnnType type;
  type.channel_dim = channel_dim;
  type.num_scales = static_cast<uint32_t>(scale.type.shape.numel().value());
  if (weight.type.quant.bits == 4) {
    type.datatype = xn::XNNDatatype::xnn_datatype_qbint4;
    type.params = xn::XNNQuantParams::PerChannelGroupQuant;
    type.block = weight.type.quant.block;
    if (type.block % 32 != 0) Fail(StrCat("4-bit weights in blocks of ", type.block, "; it takes multiples of 32"));
  } else {
    type.datatype = xn::XNNDatatype::xnn_datatype_qcint8;
    type.params = xn::XNNQuantParams::PerChannelQuant;
  }
  if (mode_ == Mode::kCheck) return NewValue(shape, type);
  // The scales of one weight are constants of one value, so they need no table of their own.
  type.scales = static_cast<uint32_t>(constants_.size());
  constants_.push_back(Stored("weight:" + scale.name, scale));
  XnnConstant data;
  if (!make) {
    data = Stored(key, weight);
  } else {
    data.bytes = make();
    data.size = data.bytes.size();
    if (data.size >= kInlineBytes) {
      data.key = key;
      shared_.push_back({key, nullptr, std::move(data.bytes)});
      data.bytes.clear();
    }
  }
  return weights_[key] = NewConstant(shape, std::move(data), type);
}

Id Lowering::Weight(std::string key, Shape shape, const std::function<std::vector<float>()>& make) {
  if (auto it = weights_.find(key); it != weights_.end()) return it->second;
  if (mode_ == Mode::kCheck) return NewValue(shape);
  XnnConstant data;
  data.bytes = BytesOf(make());
  data.size = data.bytes.size();
  if (data.size >= kInlineBytes) {
    data.key = key;
    shared_.push_back({key, nullptr, std::move(data.bytes)});
    data.bytes.clear();
  }
  return weights_[key] = NewConstant(shape, std::move(data));
}

Id Lowering::Emit(XnnNode node, Shape shape, XnnType type) {
  // XNNPACK refuses most tensors without elements, and divides by their sizes in others.
  auto empty = [](const Shape& s) { return std::any_of(s.begin(), s.end(), [](Dim d) { return d == Dim(0); }); };
  bool any_empty = empty(shape);
  for (Id in : node.in)
    if (in != kNoId) any_empty |= empty(this->shape(in));
  if (any_empty) Fail("a tensor of no elements");
  node.out = NewValue(shape, type);
  const Id out = node.out;
  if (mode_ == Mode::kEmit) nodes_.push_back(std::move(node));
  return out;
}

Id Lowering::Convert(Id x, XnnType to) { return Emit(XnnNode(Kind::XNNConvert, {x}), shape(x), to); }

Id Lowering::Unary(Kind kind, Id x) { return Emit(XnnNode(kind, {x}), shape(x)); }

Id Lowering::Clamp(Id x, double min, double max) {
  if (!(min < max)) Fail("a clamp whose bounds are not in order");
  // XNNPACK fuses a clamp into the clamp before it by intersecting their ranges, which is wrong where these do not overlap.
  double low = min, high = max;
  if (auto before = ranges_.find(x); before != ranges_.end()) {
    low = std::max(low, before->second.first);
    high = std::min(high, before->second.second);
  }
  if (!(low < high)) return Binary(Kind::XNNMinimum, Binary(Kind::XNNMaximum, x, Number(min)), Number(max));
  XnnNode node(Kind::XNNClamp, {x});
  node.ranged = true;
  node.min = static_cast<float>(min);
  node.max = static_cast<float>(max);
  const Id y = Emit(std::move(node), shape(x));
  ranges_[y] = {low, high};
  return y;
}

Id Lowering::Binary(Kind kind, Id a, Id b) {
  Result<Shape> out = Broadcast(shape(a), shape(b));
  if (!out.ok()) Fail(std::string(out.status().message()));
  const Shape result = out.ok() ? *out : shape(a);
  return Emit(XnnNode(kind, {a, b}), result);
}

Id Lowering::Softmax(Id x) { return Emit(XnnNode(Kind::XNNSoftmax, {x}), shape(x)); }

Id Lowering::Reshape(Id x, const Shape& to) {
  if (shape(x) == to) return x;
  if (to.empty()) Fail("a tensor without dims");
  std::vector<uint32_t> sizes;
  size_t free = 0;
  for (Dim d : to) {
    if (d == Dim(0)) Fail("a view of no elements");
    if (!d.is_constant()) ++free;
    sizes.push_back(d.is_constant() ? static_cast<uint32_t>(d.value()) : 0);
  }
  if (free > 1) Fail(StrCat("a view to [", to.ToString(), "]: at most one size may be symbolic"));
  XnnNode node(Kind::XNNStaticReshape, {x});
  node.a = std::move(sizes);
  return Emit(std::move(node), to);
}

Id Lowering::Transpose(Id x, const std::vector<size_t>& perm) {
  const Shape from = shape(x);
  Shape to;
  bool identity = true;
  for (size_t i = 0; i < perm.size(); ++i) {
    to.push_back(from[perm[i]]);
    identity = identity && perm[i] == i;
  }
  if (identity) return x;
  XnnNode node(Kind::XNNStaticTranspose, {x});
  node.a.assign(perm.begin(), perm.end());
  return Emit(std::move(node), to);
}

Id Lowering::Slice(Id x, size_t axis, int64_t start, int64_t length) {
  Shape to = shape(x);
  if (length <= 0) Fail("a slice of no elements");
  if (start == 0 && to[axis] == Dim(length)) return x;
  std::vector<uint32_t> offsets(to.rank(), 0), sizes(to.rank(), 0);  // size 0: the whole dim
  offsets[axis] = static_cast<uint32_t>(start);
  sizes[axis] = static_cast<uint32_t>(length);
  to[axis] = length;
  XnnNode node(Kind::XNNStaticSlice, {x});
  node.a = std::move(offsets);
  node.b = std::move(sizes);
  return Emit(std::move(node), to);
}

Id Lowering::Concat(std::vector<Id> parts, size_t axis) {
  if (parts.empty()) Fail("a concatenation of nothing");
  while (parts.size() > 1) {
    const size_t count = std::min<size_t>(parts.size(), 5);
    static constexpr Kind kKinds[] = {Kind::XNNConcatenate2, Kind::XNNConcatenate3, Kind::XNNConcatenate4, Kind::XNNConcatenate5};
    XnnNode node(kKinds[count - 2], {});
    Shape to = shape(parts[0]);
    to[axis] = 0;
    for (size_t i = 0; i < count; ++i) {
      node.in[i] = parts[i];
      to[axis] = to[axis] + shape(parts[i])[axis];
    }
    node.axis = static_cast<int32_t>(axis);
    const Id joined = Emit(std::move(node), to);
    parts.erase(parts.begin() + 1, parts.begin() + static_cast<std::ptrdiff_t>(count));
    parts[0] = joined;
  }
  return parts.empty() ? NewValue(Shape{Dim(1)}) : parts[0];
}

Id Lowering::Pad(Id x, const std::vector<uint32_t>& before, const std::vector<uint32_t>& after, double value) {
  Shape to = shape(x);
  for (size_t i = 0; i < to.rank(); ++i) to[i] = to[i] + Dim(int64_t{before[i]} + after[i]);
  XnnNode node(Kind::XNNStaticConstantPad, {x});
  node.a = before;
  node.b = after;
  node.number = static_cast<float>(value);
  return Emit(std::move(node), to);
}

Id Lowering::FullyConnected(Id x, Id filter, Id bias, uint32_t flags) {
  Shape to = shape(x);
  to[to.rank() - 1] = shape(filter)[flags & kTransposeWeights ? 1 : 0];
  XnnNode node(Kind::XNNFullyConnected, {x, filter, bias});
  node.flags = flags;
  return Emit(std::move(node), to);
}

Id Lowering::MatMul(Id a, Id b, bool transpose_b) {
  const Shape &x = shape(a), &y = shape(b);
  if (x.rank() < 2 || y.rank() < 2) {
    Fail("a matrix product with a vector");
    return NewValue(x);
  }
  Result<Shape> batch = Broadcast(Shape(x.dims().first(x.rank() - 2)), Shape(y.dims().first(y.rank() - 2)));
  if (!batch.ok()) Fail(std::string(batch.status().message()));
  Shape to = batch.ok() ? *batch : Shape();
  to.push_back(x[x.rank() - 2]);
  to.push_back(y[y.rank() - (transpose_b ? 2 : 1)]);
  XnnNode node(Kind::XNNBatchMatrixMultiply, {a, b});
  node.flags = transpose_b ? kTransposeWeights : 0;
  return Emit(std::move(node), to);
}

Id Lowering::ToChannelsLast(Id x) {
  if (shape(x).rank() < 3) {
    Fail("a tensor without spatial dims");
    return x;
  }
  return Transpose(x, ChannelsLastOrder(shape(x).rank()));
}

Id Lowering::ToPlain(Id x) {
  const size_t rank = shape(x).rank();
  std::vector<size_t> perm = {0, rank - 1};
  for (size_t i = 1; i + 1 < rank; ++i) perm.push_back(i);
  return Transpose(x, perm);
}

}  // namespace dovetail::xnnpack
