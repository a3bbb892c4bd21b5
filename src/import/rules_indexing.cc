// Reads and writes at positions that are tensors, and elements in another order.
#include <algorithm>

#include "import/rules.h"

namespace dovetail::pt2 {
namespace {

// index_put at `index` in dimension `axis`, all of the other dimensions.
ValueId PutAt(Call& c, ValueId self, size_t axis, ValueId index, ValueId values, bool accumulate) {
  std::vector<ValueId> operands(1 + axis, kNone);
  operands[0] = self;
  operands.push_back(index);
  operands.push_back(values);
  return c.Emit(OpId::kIndexPut, std::move(operands), {{"accumulate", accumulate}});
}

ValueId AsList(Call& c, ValueId index) { return c.ok() && c.shape(index).empty() ? c.Reshape(index, {1}) : index; }

void IndexCopy(Call& c) {
  const ValueId self = c.Tensor("self"), index = AsList(c, c.Tensor("index"));
  const size_t axis = c.Axis(c.Int("dim"), c.shape(self).rank());
  c.Return(PutAt(c, self, axis, index, c.Tensor("source"), false));
}
void IndexAdd(Call& c) {
  const ValueId self = c.Tensor("self"), index = AsList(c, c.Tensor("index"));
  ValueId source = c.Tensor("source");
  const size_t axis = c.Axis(c.Int("dim"), c.shape(self).rank());
  if (c.Has("alpha") && c.Scalar("alpha").Number() != 1) source = c.Emit(OpId::kMul, {source, c.ScalarTensor(c.Scalar("alpha"), c.type(source).dtype)});
  c.Return(PutAt(c, self, axis, index, source, true));
}
void IndexFill(Call& c) {
  const ValueId self = c.Tensor("self"), index = AsList(c, c.Tensor("index"));
  const DType dtype = c.type(self).dtype;
  const ValueId value = c.IsTensor("value") ? c.Convert(c.Tensor("value"), dtype) : c.ScalarTensor(c.Scalar("value"), dtype);
  c.Return(PutAt(c, self, c.Axis(c.Int("dim"), c.shape(self).rank()), index, value, false));
}

void IndexPut(Call& c) {
  const ValueId self = c.Tensor("self");
  std::vector<ValueId> operands = {self};
  for (ValueId v : c.Tensors("indices")) operands.push_back(v);
  operands.push_back(c.Convert(c.Tensor("values"), c.type(self).dtype));
  c.Return(c.Emit(OpId::kIndexPut, std::move(operands), {{"accumulate", c.Bool("accumulate", false)}}));
}

void SelectScatter(Call& c) {
  const ValueId self = c.Tensor("self"), src = c.Tensor("src");
  const size_t axis = c.Axis(c.Int("dim"), c.shape(self).rank());
  if (!c.ok() || c.shape(self).empty()) return c.Fail(InvalidArgument("select_scatter into a tensor of rank 0"));
  Dim at = c.SymInt("index");
  if (at.is_constant() && at.value() < 0) at = at + c.shape(self)[axis];
  std::vector<Dim> sizes(c.shape(self).begin(), c.shape(self).end());
  sizes[axis] = 1;
  c.Return(c.Emit(OpId::kSliceScatter, {self, c.Reshape(src, std::move(sizes))}, {{"dim", static_cast<int64_t>(axis)}, {"start", at}, {"end", at + Dim(1)}}));
}

// The indices of gather and scatter: `index` itself in dimension `axis`, an arange along every other.
std::vector<ValueId> ElementIndices(Call& c, ValueId index, size_t axis) {
  std::vector<ValueId> indices;
  const Shape shape = c.shape(index);
  for (size_t i = 0; c.ok() && i < shape.rank(); ++i) {
    if (i == axis) {
      indices.push_back(index);
      continue;
    }
    std::vector<Dim> sizes(shape.rank(), 1);
    sizes[i] = shape[i];
    const ValueId range = c.Emit(OpId::kArange, {}, {{"start", 0}, {"end", shape[i]}, {"out_dtype", c.type(index).dtype}});
    indices.push_back(c.Reshape(range, std::move(sizes)));
  }
  return indices;
}
void Gather(Call& c) {
  const ValueId self = c.Tensor("self"), index = c.Tensor("index");
  const size_t axis = c.Axis(c.Int("dim"), c.shape(self).rank());
  if (!c.ok() || c.shape(self).empty() || c.shape(index).rank() != c.shape(self).rank()) return c.Fail(Unsupported("gather of these shapes"));
  std::vector<ValueId> operands = {self};
  for (ValueId v : ElementIndices(c, index, axis)) operands.push_back(v);
  c.Return(c.Emit(OpId::kIndex, std::move(operands)));
}
void Scatter(Call& c, bool accumulate) {
  const ValueId self = c.Tensor("self"), index = c.Tensor("index");
  const size_t axis = c.Axis(c.Int("dim"), c.shape(self).rank());
  const ValueId src = c.IsTensor("src") ? c.Tensor("src") : c.ScalarTensor(c.Scalar("value"), c.type(self).dtype);
  if (!c.ok() || c.shape(self).empty() || c.shape(index).rank() != c.shape(self).rank()) return c.Fail(Unsupported("scatter of these shapes"));
  if (c.IsTensor("src") && !(c.shape(src) == c.shape(index))) return c.Fail(Unsupported("scatter of a part of its source"));
  std::vector<ValueId> operands = {self};
  for (ValueId v : ElementIndices(c, index, axis)) operands.push_back(v);
  operands.push_back(src);
  c.Return(c.Emit(OpId::kIndexPut, std::move(operands), {{"accumulate", accumulate}}));
}

void Flip(Call& c) {
  ValueId v = c.Tensor("self");
  for (int64_t dim : c.Ints("dims", {})) {
    const size_t axis = c.Axis(dim, c.shape(v).rank());
    if (!c.ok() || c.shape(v).empty()) return;
    const Dim size = c.shape(v)[axis];
    const ValueId range = c.Emit(OpId::kArange, {}, {{"start", 0}, {"end", size}, {"out_dtype", DType::kI64}});
    const ValueId index = c.Emit(OpId::kSub, {c.ScalarTensor(size - Dim(1), DType::kI64), range});
    v = c.Emit(OpId::kIndexSelect, {v, index}, {{"dim", static_cast<int64_t>(axis)}});
  }
  c.Return(v);
}

// Element i comes from (i - shift) mod size: two slices change places, or, of a symbolic size, an index is computed.
ValueId Rolled(Call& c, ValueId x, size_t axis, Dim shift) {
  if (!c.ok() || c.shape(x).empty()) return x;
  const Dim size = c.shape(x)[axis];
  const int64_t dim = static_cast<int64_t>(axis);
  if (size.is_constant() && shift.is_constant()) {
    const Dim from = size - Dim::Mod(shift, size);
    if (size == Dim(0) || from == size) return x;
    const ValueId tail = c.Emit(OpId::kSlice, {x}, {{"dim", dim}, {"start", from}, {"end", size}});
    return c.Emit(OpId::kCat, {tail, c.Emit(OpId::kSlice, {x}, {{"dim", dim}, {"start", 0}, {"end", from}})}, {{"dim", dim}});
  }
  const ValueId range = c.Emit(OpId::kArange, {}, {{"start", 0}, {"end", size}, {"out_dtype", DType::kI64}});
  const ValueId moved = c.Emit(OpId::kSub, {range, c.ScalarTensor(shift, DType::kI64)});
  return c.Emit(OpId::kIndexSelect, {x, c.Emit(OpId::kRemainder, {moved, c.ScalarTensor(size, DType::kI64)})}, {{"dim", dim}});
}
void Roll(Call& c) {
  ValueId x = c.Tensor("self");
  const std::vector<Dim> shifts = c.SymInts("shifts");
  const std::vector<int64_t> dims = c.Ints("dims", {});
  if (!c.ok()) return;
  const Shape shape = c.shape(x);
  if (dims.empty() && shifts.size() == 1) {
    x = Rolled(c, c.Reshape(x, {shape.numel()}), 0, shifts[0]);
    return c.Return(c.Reshape(x, {shape.begin(), shape.end()}));
  }
  if (dims.size() != shifts.size()) return c.Fail(InvalidArgument("roll of ", dims.size(), " dimensions with ", shifts.size(), " shifts"));
  for (size_t i = 0; i < dims.size(); ++i) x = Rolled(c, x, c.Axis(dims[i], shape.rank()), shifts[i]);
  c.Return(x);
}

// With its two dims last and merged into one, a diagonal is every (columns + 1)th element: a view.
TensorId DiagonalOf(Call& c, TensorId self) {
  const Shape shape = c.LogicalShape(self);
  const size_t a = c.Axis(c.Int("dim1", 0), shape.rank()), b = c.Axis(c.Int("dim2", 1), shape.rank());
  const int64_t offset = c.Int("offset", 0);
  if (a == b) c.Fail(InvalidArgument("a diagonal of dimension ", a, " and itself"));
  if (!c.ok()) return kNone;
  if (!shape[a].is_constant() || !shape[b].is_constant()) {
    c.Fail(Unsupported("the diagonal of a matrix of size [", shape[a].ToString(), ",", shape[b].ToString(), "]; both must be constant"));
    return kNone;
  }
  const int64_t rows = shape[a].value(), columns = shape[b].value();
  std::vector<Dim> order, sizes;
  for (size_t i = 0; i < shape.rank(); ++i) {
    if (i == a || i == b) continue;
    order.push_back(static_cast<int64_t>(i));
    sizes.push_back(shape[i]);
  }
  order.push_back(static_cast<int64_t>(a));
  order.push_back(static_cast<int64_t>(b));
  sizes.push_back(rows * columns);
  const int64_t length = std::clamp<int64_t>(offset < 0 ? std::min(rows + offset, columns) : std::min(rows, columns - offset), 0, std::max(rows, columns));
  const int64_t start = length == 0 ? 0 : offset < 0 ? -offset * columns : offset;
  const TensorId flat = c.ViewSizes(c.ViewPermuted(self, std::move(order)), std::move(sizes));
  return c.ViewSlice(flat, shape.rank() - 2, start, length, columns + 1);
}
void Diagonal(Call& c) { c.ReturnView(DiagonalOf(c, c.Handle("self"))); }
void DiagonalScatter(Call& c) {
  c.Return(c.Tensor("self"));
  c.Write(DiagonalOf(c, c.results()[0]), c.Tensor("src"));
}

constexpr Rule kRules[] = {
    {"aten.index_copy.default", IndexCopy},
    {"aten.index_add.default", IndexAdd},
    {"aten.index_fill.int_Scalar", IndexFill},
    {"aten.index_fill.int_Tensor", IndexFill},
    {"aten.index_put.default", IndexPut},
    {"aten._unsafe_index_put.default", IndexPut},
    {"aten.select_scatter.default", SelectScatter},
    {"aten.flip.default", Flip},
    {"aten.roll.default", Roll},
    {"aten.diagonal.default", Diagonal},
    {"aten.diagonal_copy.default", Diagonal},
    {"aten.diagonal_scatter.default", DiagonalScatter},
    {"aten.gather.default", Gather},
    {"aten.scatter.src", [](Call& c) { Scatter(c, false); }},
    {"aten.scatter.value", [](Call& c) { Scatter(c, false); }},
    {"aten.scatter_add.default", [](Call& c) { Scatter(c, true); }},
};

}  // namespace

const std::span<const Rule> kIndexingRules = kRules;

// Operators that replace the contents of their first operand: their functional forms do not read it.
namespace {

void CopyInto(Call& c) {
  const TensorId self = c.Handle("self"), src = c.Handle("src");
  if (c.ok() && c.is_complex(self) != c.is_complex(src)) return c.Fail(Unsupported("a copy between real and complex numbers"));
  const TensorType t = c.handle_type(self);
  c.Return(c.Expand(c.Convert(c.Read(src), t.dtype), t.shape), c.is_complex(self));
}
void Fill(Call& c) {
  const TensorId self = c.Handle("self");
  if (c.is_complex(self)) return c.Fail(Unsupported("complex numbers in this operator"));
  const TensorType t = c.handle_type(self);
  const ValueId v = c.IsTensor("value") ? c.Convert(c.Tensor("value"), t.dtype) : c.ScalarTensor(c.Scalar("value"), t.dtype);
  c.Return(c.Expand(v, t.shape));
}
void Zero(Call& c) {
  const TensorType t = c.handle_type(c.Handle("self"));
  c.Return(c.Expand(c.ScalarTensor(Attr(0), t.dtype), t.shape), c.is_complex(c.Handle("self")));
}

constexpr Rule kInPlace[] = {
    {"aten.copy.default", CopyInto},
    {"aten.fill.Scalar", Fill},
    {"aten.fill.Tensor", Fill},
    {"aten.zero.default", Zero},
};

}  // namespace

const std::span<const Rule> kInPlaceRules = kInPlace;

}  // namespace dovetail::pt2
