#include "backends/xnnpack/lowering.h"
#include "ops/infer_util.h"

namespace dovetail::xnnpack {
namespace {

void View(Lowering& l, const Node& n) { l.Bind(n.results[0], l.Reshape(l.Operand(n.operands[0]), l.type(n.results[0]).shape)); }

// The value itself: values do not change, so there is nothing to copy.
void Same(Lowering& l, const Node& n) {
  if (!(l.type(n.operands[0]).shape == l.type(n.results[0]).shape)) return l.Fail("repeating elements to a larger shape");
  const Order order = l.OnlyChannelsLast(n.operands[0]) ? Order::kChannelsLast : Order::kPlain;
  l.Bind(n.results[0], l.Operand(n.operands[0], order), order);
}

void Permute(Lowering& l, const Node& n) {
  const Id x = l.Operand(n.operands[0]);
  const size_t rank = l.shape(x).rank();
  std::vector<size_t> perm;
  for (Dim d : DimsOf(GetAttr(n, "dims"))) {
    const Result<size_t> axis = d.is_constant() ? NormalizeAxis(d.value(), rank) : Result<size_t>(InvalidArgument("symbolic"));
    if (!axis.ok()) return l.Fail("a permutation with a bad dimension");
    perm.push_back(*axis);
  }
  if (perm.size() != rank) return l.Fail("a permutation with a bad dimension");
  l.Bind(n.results[0], l.Transpose(x, perm));
}

void Slice(Lowering& l, const Node& n) {
  const Id x = l.Operand(n.operands[0]);
  const Shape& shape = l.shape(x);
  const Result<size_t> axis = NormalizeAxis(GetAttr(n, "dim").Int(), shape.rank());
  if (!axis.ok()) return l.Fail("a slice along a bad dimension");
  const Result<SliceRange> range = ResolveSlice(shape[*axis], GetAttr(n, "start"), GetAttr(n, "end"), GetAttr(n, "step"));
  if (!range.ok()) return l.Fail(std::string(range.status().message()));
  if (range->step != 1) return l.Fail(StrCat("a slice with step ", range->step));
  if (range->start == Dim(0) && range->length == shape[*axis]) return l.Bind(n.results[0], x);
  if (!range->start.is_constant() || !range->length.is_constant())
    return l.Fail(StrCat("a slice of ", range->length.ToString(), " elements from ", range->start.ToString(), "; they must be constants"));
  l.Bind(n.results[0], l.Slice(x, *axis, range->start.value(), range->length.value()));
}

void Cat(Lowering& l, const Node& n) {
  const size_t rank = l.type(n.results[0]).rank();
  const Result<size_t> axis = NormalizeAxis(GetAttr(n, "dim").Int(), rank);
  if (!axis.ok() || rank == 0) return l.Fail("a concatenation along a bad dimension");
  const bool last =
      (rank == 3 || rank == 4) && std::all_of(n.operands.begin(), n.operands.end(), [&](ValueId v) { return l.OnlyChannelsLast(v); });
  std::vector<Id> parts;
  for (ValueId v : n.operands) {
    if (l.type(v).rank() != rank) return l.Fail("a concatenation of tensors of different ranks");
    parts.push_back(l.Operand(v, last ? Order::kChannelsLast : Order::kPlain));
  }
  if (!last) return l.Bind(n.results[0], l.Concat(std::move(parts), *axis));
  l.Bind(n.results[0], l.Concat(std::move(parts), *axis == 0 ? 0 : *axis == 1 ? rank - 1 : *axis - 1), Order::kChannelsLast);
}

void ConstantPad(Lowering& l, const Node& n) {
  const Order order = l.OnlyChannelsLast(n.operands[0]) ? Order::kChannelsLast : Order::kPlain;
  const Id x = l.Operand(n.operands[0], order);
  const size_t rank = l.shape(x).rank();
  std::vector<uint32_t> before(rank, 0), after(rank, 0);
  const std::span<const Dim> pad = DimsOf(GetAttr(n, "pad"));
  if (pad.size() % 2 != 0 || pad.size() / 2 > rank) return l.Fail("a padding of a bad length");
  for (size_t i = 0; i < pad.size(); ++i) {
    if (!pad[i].is_constant() || pad[i].value() < 0 || pad[i].value() > INT32_MAX)
      return l.Fail("a padding that is negative or not a constant");
    size_t dim = rank - 1 - i / 2;  // in plain order
    if (order == Order::kChannelsLast) dim = dim == 0 ? 0 : dim == 1 ? rank - 1 : dim - 1;
    (i % 2 == 0 ? before : after)[dim] = static_cast<uint32_t>(pad[i].value());
  }
  l.Bind(n.results[0], l.Pad(x, before, after, GetAttr(n, "value").Number()), order);
}

}  // namespace

LowerFn FindMovement(OpId op) {
  switch (op) {
    case OpId::kView: return View;
    case OpId::kPermute: return Permute;
    case OpId::kExpand:
    case OpId::kClone: return Same;
    case OpId::kSlice: return Slice;
    case OpId::kCat: return Cat;
    case OpId::kConstantPadNd: return ConstantPad;
    default: return nullptr;
  }
}

}  // namespace dovetail::xnnpack
