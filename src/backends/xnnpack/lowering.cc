#include "backends/xnnpack/lowering.h"

#include <algorithm>
#include <cmath>

namespace dovetail::xnnpack {
namespace {

constexpr size_t kMaxXnnRank = 6;
constexpr int64_t kNarrow = 8;  // channels; XNNPACK moves bytes in tiles of 32 by 32, floats of 8 by 8

}  // namespace

std::vector<size_t> ChannelsLastOrder(size_t rank) {
  std::vector<size_t> perm = {0};
  for (size_t i = 2; i < rank; ++i) perm.push_back(i);
  perm.push_back(1);
  return perm;
}

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
  values_.push_back({shape, 0, kNoId, kNoId, false, type});
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

const XnnNode* Lowering::MadeBy(Id id, Kind kind) const {
  const uint32_t node = values_[id].node;
  return node != kNoId && nodes_[node].kind == kind ? &nodes_[node] : nullptr;
}

// Of a value on the way into, inside or out of a region.
XnnType Lowering::StoredType(ValueId v) {
  const TensorType& t = type(v);
  if (t.per_tensor() && t.dtype == DType::kI8) return XnnType::PerTensor(t.quant.scale, t.quant.zero_point);
  if (t.quant.kind == QuantParams::Kind::kDynamic && graph_.producer_if(v, OpId::kQuantizeDynamic)) {
    // Rows of more than one dim are those of a convolution, which has four dims in XNNPACK.
    const int64_t row_dims = GetAttr(*graph_.producer(v), "num_nonbatch_dims").Int(1);
    return XnnType::PerRow(row_dims > 1 ? 3 : 1);
  }
  if (t.dtype != DType::kF32 || t.quant.kind != QuantParams::Kind::kNone)
    Fail(StrCat("a tensor of type ", t.ToString(), "; only f32, and i8 with one scale, are supported"));
  return {};
}

Id Lowering::Operand(ValueId v, Order order) {
  const bool convert = in_f32_ && type(v).per_tensor();
  auto& known = convert ? real_ : bound_;
  if (auto it = known.find({v, order}); it != known.end()) return it->second;
  const TensorType& t = type(v);
  const XnnType xnn_type = StoredType(v);
  Id id;
  if (const Constant* c = GetConstant(module_, graph_, v)) {
    id = ConstantOperand(v, *c, order);
  } else if (convert) {
    in_f32_ = false;
    const Id integers = Operand(v, order);
    in_f32_ = true;
    id = Convert(integers, {});
  } else if (auto other = bound_.find({v, order == Order::kPlain ? Order::kChannelsLast : Order::kPlain}); other != bound_.end()) {
    id = order == Order::kPlain ? ToPlain(other->second) : ToChannelsLast(other->second);
  } else {
    if (mode_ == Mode::kEmit) Fail(StrCat("value ", v, " is used before it is made"));
    if (t.shape.empty()) Fail("a tensor without dims");
    id = NewValue(AtLeastOneDim(t.shape), xnn_type);
    bound_[{v, Order::kPlain}] = id;
    if (order == Order::kChannelsLast) id = ToChannelsLast(id);
  }
  known[{v, order}] = id;
  return id;
}

bool Lowering::OnlyChannelsLast(ValueId v) const {
  return bound_.contains({v, Order::kChannelsLast}) && !bound_.contains({v, Order::kPlain}) && !GetConstant(module_, graph_, v);
}

void Lowering::Bind(ValueId v, Id id, Order order) {
  const XnnType want = StoredType(v);
  if (in_f32_ && type(v).per_tensor()) id = Convert(id, want);
  if (!failed() && !(xnn_type(id) == want)) Fail(StrCat("its lowering gives another type than ", type(v).ToString()));
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

Id Lowering::Emit(XnnNode node, Shape shape, XnnType type) {
  // XNNPACK refuses most tensors without elements, and divides by their sizes in others.
  auto empty = [](const Shape& s) { return std::any_of(s.begin(), s.end(), [](Dim d) { return d == Dim(0); }); };
  bool any_empty = empty(shape);
  for (Id in : node.in)
    if (in != kNoId) any_empty |= empty(this->shape(in));
  if (any_empty) Fail("a tensor of no elements");
  node.out = NewValue(shape, type);
  const Id out = node.out;
  if (mode_ == Mode::kEmit) {
    values_[out].node = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back(std::move(node));
  }
  return out;
}

Id Lowering::Convert(Id x, XnnType to) { return Emit(XnnNode(Kind::XNNConvert, {x}), shape(x), to); }

Id Lowering::Unary(Kind kind, Id x, XnnType type) { return Emit(XnnNode(kind, {x}), shape(x), type); }

Id Lowering::Clamp(Id x, double min, double max) {
  if (!(min < max)) Fail("a clamp whose bounds are not in order");
  // XNNPACK fuses a clamp into the clamp before it by intersecting their ranges, which is wrong where these do not overlap.
  double low = min, high = max;
  if (auto before = ranges_.find(x); before != ranges_.end()) {
    low = std::max(low, before->second.first);
    high = std::min(high, before->second.second);
  }
  if (!(low < high)) {
    const XnnType type = xnn_type(x);
    const bool integers = type.datatype != xn::XNNDatatype::xnn_datatype_fp32;
    const Id y = Binary(Kind::XNNMinimum, Binary(Kind::XNNMaximum, integers ? Convert(x, {}) : x, Number(min)), Number(max));
    return integers ? Convert(y, type) : y;
  }
  XnnNode node(Kind::XNNClamp, {x});
  node.ranged = true;
  node.min = static_cast<float>(min);
  node.max = static_cast<float>(max);
  const Id y = Emit(std::move(node), shape(x), xnn_type(x));
  ranges_[y] = {low, high};
  return y;
}

Id Lowering::Binary(Kind kind, Id a, Id b, XnnType type) {
  Result<Shape> out = Broadcast(shape(a), shape(b));
  if (!out.ok()) Fail(std::string(out.status().message()));
  const Shape result = out.ok() ? *out : shape(a);
  return Emit(XnnNode(kind, {a, b}), result, type);
}

Id Lowering::Softmax(Id x) { return Emit(XnnNode(Kind::XNNSoftmax, {x}), shape(x)); }

Id Lowering::Reshape(Id x, const Shape& to) {
  if (shape(x) == to) return x;
  if (const XnnNode* before = MadeBy(x, Kind::XNNStaticReshape)) return Reshape(before->in[0], to);
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
  return Emit(std::move(node), to, xnn_type(x));
}

Id Lowering::Transpose(Id x, const std::vector<size_t>& perm) {
  const Shape from = shape(x);
  Shape to;
  // Where only dims of 1 move, the elements stay.
  bool identity = true, in_place = true;
  size_t last = 0, symbolic = 0;
  for (size_t i = 0; i < perm.size(); ++i) {
    to.push_back(from[perm[i]]);
    identity = identity && perm[i] == i;
    symbolic += !to[i].is_constant();
    if (to[i] == Dim(1)) continue;
    in_place = in_place && perm[i] >= last;
    last = perm[i];
  }
  if (identity) return x;
  if (in_place && symbolic <= 1) return Reshape(x, to);
  XnnNode node(Kind::XNNStaticTranspose, {x});
  node.a.assign(perm.begin(), perm.end());
  return Emit(std::move(node), to, xnn_type(x));
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
  return Emit(std::move(node), to, xnn_type(x));
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
    const Id joined = Emit(std::move(node), to, xnn_type(parts[0]));
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
  return Emit(std::move(node), to, xnn_type(x));
}

Id Lowering::FullyConnected(Id x, Id filter, Id bias, uint32_t flags, XnnType type) {
  Shape to = shape(x);
  to[to.rank() - 1] = shape(filter)[flags & kTransposeWeights ? 1 : 0];
  XnnNode node(Kind::XNNFullyConnected, {x, filter, bias});
  node.flags = flags;
  return Emit(std::move(node), to, type);
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
  // Few channels are turned as floats and then converted, which the fewer bytes do not make up for.
  const XnnNode* convert = shape(x)[1].is_constant() && shape(x)[1].value() <= kNarrow ? MadeBy(x, Kind::XNNConvert) : nullptr;
  if (convert && xnn_type(x).params == xn::XNNQuantParams::PerTensorQuant) {
    const XnnType type = xnn_type(x);
    return Convert(ToChannelsLast(convert->in[0]), type);
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
