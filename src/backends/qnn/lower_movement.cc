#include <algorithm>
#include <cmath>

#include "backends/qnn/lowering.h"
#include "ops/infer_util.h"

namespace dovetail::qnn {
namespace {

void View(Lowering& l, const Node& n) { l.ReshapeInto(l.In(n.operands[0]), l.Out(n.results[0])); }

void Permute(Lowering& l, const Node& n) {
  const Id x = l.In(n.operands[0]);
  const size_t rank = l.type(n.operands[0]).rank();
  std::vector<uint32_t> perm;
  for (Dim d : DimsOf(GetAttr(n, "dims"))) {
    const Result<size_t> axis = d.is_constant() ? NormalizeAxis(d.value(), rank) : Result<size_t>(InvalidArgument("symbolic"));
    if (!axis.ok()) return l.Fail("a permutation with a bad dimension");
    perm.push_back(static_cast<uint32_t>(*axis));
  }
  if (perm.size() != rank || rank == 0) return l.Fail("a permutation with a bad dimension");
  l.TransposeInto(x, perm, l.Out(n.results[0]));
}

// Elements start to end, not included, of one axis.
void SliceInto(Lowering& l, Id x, size_t axis, int64_t start, int64_t end, int64_t step, Id to) {
  std::vector<int64_t> ranges;
  for (size_t i = 0; i < l.dims(x).size(); ++i)
    for (int64_t v : {i == axis ? start : 0, i == axis ? end : static_cast<int64_t>(l.dims(x)[i]), i == axis ? step : 1}) ranges.push_back(v);
  l.Op("StridedSlice", {x}, {to}, {Ints("ranges", {static_cast<uint32_t>(l.dims(x).size()), 3}, std::move(ranges))});
}

// A slice of constant bounds along an axis; a failure is recorded.
bool ReadSlice(Lowering& l, const Node& n, size_t* axis, SliceRange* range) {
  const Shape& shape = l.type(n.operands[0]).shape;
  const Result<size_t> a = NormalizeAxis(GetAttr(n, "dim").Int(), shape.rank());
  if (!a.ok() || shape.empty()) {
    l.Fail("a slice along a bad dimension");
    return false;
  }
  const Result<SliceRange> r = ResolveSlice(shape[*a], GetAttr(n, "start"), GetAttr(n, "end"), GetAttr(n, "step"));
  if (!r.ok() || !r->start.is_constant() || !r->length.is_constant()) {
    l.Fail("a slice whose bounds are not constants");
    return false;
  }
  *axis = *a;
  *range = *r;
  return true;
}

void Slice(Lowering& l, const Node& n) {
  size_t axis;
  SliceRange r;
  if (!ReadSlice(l, n, &axis, &r)) return;
  const int64_t start = r.start.value(), end = start + (r.length.value() - 1) * r.step + 1;
  SliceInto(l, l.In(n.operands[0]), axis, start, end, r.step, l.Out(n.results[0]));
}

void SliceScatter(Lowering& l, const Node& n) {
  size_t axis;
  SliceRange r;
  if (!ReadSlice(l, n, &axis, &r)) return;
  if (r.step != 1) return l.Fail(StrCat("a write to a slice with step ", r.step));
  const Id self = l.In(n.operands[0]), src = l.In(n.operands[1]);
  const int64_t start = r.start.value(), end = start + r.length.value(), size = l.dims(self)[axis];
  std::vector<Id> parts;
  const auto keep = [&](int64_t from, int64_t to) {
    if (from >= to) return;
    Dims dims = l.dims(self);
    dims[axis] = static_cast<uint32_t>(to - from);
    parts.push_back(l.Temp(std::move(dims), l.qnn_type(self)));
    SliceInto(l, self, axis, from, to, 1, parts.back());
  };
  keep(0, start);
  if (r.length.value() > 0) parts.push_back(src);
  keep(end, size);
  if (parts.size() == 1) return l.ReshapeInto(parts[0], l.Out(n.results[0]));
  l.Op("Concat", parts, {l.Out(n.results[0])}, {Uint("axis", axis)});
}

void Cat(Lowering& l, const Node& n) {
  const size_t rank = l.type(n.results[0]).rank();
  const Result<size_t> axis = NormalizeAxis(GetAttr(n, "dim").Int(), rank);
  if (!axis.ok() || rank == 0) return l.Fail("a concatenation along a bad dimension");
  const bool last = rank == 4 && std::all_of(n.operands.begin(), n.operands.end(), [&](ValueId v) { return l.OnlyChannelsLast(v); });
  const Order order = last ? Order::kChannelsLast : Order::kPlain;
  std::vector<Id> parts;
  for (ValueId v : n.operands) {
    if (l.type(v).rank() != rank) return l.Fail("a concatenation of tensors of different ranks");
    parts.push_back(l.In(v, order));
    // The library accepts them and fails when the graph is finalized.
    if (l.qnn_type(parts.back()).data_type != l.TypeOf(n.results[0]).data_type) return l.Fail("a concatenation of tensors of different types");
  }
  const size_t at = !last ? *axis : *axis == 0 ? 0 : *axis == 1 ? rank - 1 : *axis - 1;
  if (parts.size() == 1) return l.ReshapeInto(parts[0], l.Out(n.results[0], order));
  l.Op("Concat", parts, {l.Out(n.results[0], order)}, {Uint("axis", at)});
}

void Expand(Lowering& l, const Node& n) {
  Id x = l.In(n.operands[0]);
  const Dims to = l.DimsOf(n.results[0]);
  Dims from = l.dims(x);
  while (from.size() < to.size()) from.insert(from.begin(), 1);
  std::vector<int64_t> times;
  bool more = false;
  for (size_t i = 0; i < to.size(); ++i) {
    times.push_back(to[i] / std::max(from[i], 1u));
    more |= times.back() != 1;
  }
  x = l.Reshape(x, from);
  if (!more) return l.ReshapeInto(x, l.Out(n.results[0]));
  l.Op("Tile", {x}, {l.Out(n.results[0])}, {Uints("multiples", {static_cast<uint32_t>(times.size())}, times)});
}

void ConstantPad(Lowering& l, const Node& n) {
  const Order order = l.OnlyChannelsLast(n.operands[0]) ? Order::kChannelsLast : Order::kPlain;
  const Id x = l.In(n.operands[0], order);
  const size_t rank = l.dims(x).size();
  std::vector<int64_t> amount(rank * 2, 0);
  const std::span<const Dim> pad = DimsOf(GetAttr(n, "pad"));
  if (pad.size() % 2 != 0 || pad.size() / 2 > rank) return l.Fail("a padding of a bad length");
  for (size_t i = 0; i < pad.size(); ++i) {
    if (!pad[i].is_constant() || pad[i].value() < 0 || pad[i].value() > INT32_MAX) return l.Fail("a padding that is negative or not a constant");
    size_t dim = rank - 1 - i / 2;
    if (order == Order::kChannelsLast) dim = dim == 0 ? 0 : dim == 1 ? rank - 1 : dim - 1;
    amount[dim * 2 + i % 2] = pad[i].value();
  }
  const QnnType type = l.qnn_type(x);
  const double value = GetAttr(n, "value").Number();
  if (!std::isfinite(value)) return l.Fail("a padding with a number that is not finite");
  std::vector<QnnParam> params = {Uint("scheme", 0), Uints("pad_amount", {static_cast<uint32_t>(rank), 2}, std::move(amount))};
  // Of fixed-point numbers it is an integer of theirs.
  if (type.quantized) {
    const StoredRange range = RangeOf(type.data_type);
    const double stored = std::nearbyint(value / static_cast<double>(type.scale)) + type.zero_point;
    params.push_back(Int("pad_constant_value", static_cast<int64_t>(std::clamp<double>(stored, range.least, range.most))));
  } else {
    params.push_back(Float("pad_constant_value", value));
  }
  l.Op("Pad", {x}, {l.Out(n.results[0], order)}, params);
}

}  // namespace

LowerFn FindMovement(OpId op) {
  switch (op) {
    case OpId::kView: return View;
    case OpId::kPermute: return Permute;
    case OpId::kSlice: return Slice;
    case OpId::kSliceScatter: return SliceScatter;
    case OpId::kCat: return Cat;
    case OpId::kExpand: return Expand;
    case OpId::kConstantPadNd: return ConstantPad;
    default: return nullptr;
  }
}

}  // namespace dovetail::qnn
