// Rows by run-time numbers: Gather and ScatterNd.
#include <algorithm>

#include "backends/qnn/lowering.h"
#include "ops/dispatch.h"
#include "ops/infer_util.h"

namespace dovetail::qnn {
namespace {

// Operands are self, one index for each leading dim (kNone: all of it), and more. Numbers must not be bools.
bool NumbersOnly(Lowering& l, std::span<const ValueId> indices) {
  for (ValueId v : indices)
    if (v != kNone && l.type(v).dtype != DType::kI64 && l.type(v).dtype != DType::kI32) {
      l.Fail(StrCat("indexing by a tensor of ", Name(l.type(v).dtype)));
      return false;
    }
  return true;
}

// The numbers of a constant index counted from the start; a failure is recorded.
std::vector<int32_t> CountedFromStart(Lowering& l, const Constant& c, uint32_t size) {
  const std::vector<std::byte> data = l.DataOf(c);
  std::vector<int32_t> numbers(data.size() / ByteSize(c.type.dtype));
  for (size_t i = 0; i < numbers.size(); ++i) {
    int64_t number = ReadElement<int64_t>(c.type.dtype, data.data(), static_cast<int64_t>(i));
    if (number < 0) number += size;
    if (number < 0 || number >= size) l.Fail(StrCat("the constant index '", c.name, "' is out of bounds for a dim of ", size));
    numbers[i] = static_cast<int32_t>(number);
  }
  return numbers;
}

// An index of a dim of `size`. QNN does not count numbers below zero from the end, as PyTorch does.
Id IndexOf(Lowering& l, ValueId v, uint32_t size) {
  if (const Constant* c = l.ConstantOf(v)) return l.StaticInts(l.DimsOf(v), CountedFromStart(l, *c, size));
  return l.Once(StrCat("index ", v, " of ", size), [&] {
    const Id x = l.In(v), zero = l.StaticInts({1}, {0}), length = l.StaticInts({1}, {static_cast<int32_t>(size)});
    const Id negative = l.Temp(l.dims(x), {abi::DataType::kBool8}), from_end = l.Temp(l.dims(x), kInt32), index = l.Temp(l.dims(x), kInt32);
    l.Op("ElementWiseLess", {x, zero}, {negative});
    l.Op("ElementWiseAdd", {x, length}, {from_end});
    l.Op("ElementWiseSelect", {negative, from_end, x}, {index});
    return index;
  });
}

// Gathering has no form for bools, which are integers on the way.
void Gather(Lowering& l, ValueId data, std::string_view op, Id index, const QnnParam& param, Id to) {
  const Id x = l.In(data);
  if (l.qnn_type(x).data_type != abi::DataType::kBool8) return l.Op(op, {x, index}, {to}, {param});
  const Id integers = l.Temp(l.dims(x), kInt32), taken = l.Temp(l.dims(to), kInt32);
  l.Op("Cast", {x}, {integers});
  l.Op(op, {integers, index}, {taken}, {param});
  l.Op("Cast", {taken}, {to});
}

// data[:, index], where the whole dims are `axis` many. The library accepts results of 5 dims by an index of several and fails when they run, and it has no
// indices without dims: both become an index of one dim.
void GatherRows(Lowering& l, const Node& n, Id index, size_t axis) {
  const QnnParam param = Int("axis", static_cast<int64_t>(axis));
  const size_t rank = l.dims(index).size(), result = l.DimsOf(n.results[0]).size();
  Dims flat = l.DimsOf(n.operands[0]);
  if (result == flat.size() + rank - 1 && (rank == 1 || result <= 4)) return Gather(l, n.operands[0], "Gather", index, param, l.Out(n.results[0]));
  flat[axis] = static_cast<uint32_t>(Numel(l.dims(index)));
  const Id rows = l.Temp(flat, l.TypeOf(n.results[0]));
  Gather(l, n.operands[0], "Gather", l.Reshape(index, {flat[axis]}), param, rows);
  l.ReshapeInto(rows, l.Out(n.results[0]));
}

// embedding and index_select take no numbers below zero.
void Embedding(Lowering& l, const Node& n) { GatherRows(l, n, l.In(n.operands[1]), 0); }

void IndexSelect(Lowering& l, const Node& n) {
  const Result<size_t> axis = NormalizeAxis(GetAttr(n, "dim").Int(), l.type(n.operands[0]).rank());
  if (!axis.ok()) return l.Fail("a selection along a bad dimension");
  GatherRows(l, n, l.In(n.operands[1]), *axis);
}

// The shape that the indices broadcast to, at least one dim; a failure is recorded.
Dims CommonDims(Lowering& l, std::span<const ValueId> indices) {
  Shape common;
  for (ValueId v : indices) {
    l.DimsOf(v);  // fails on symbolic ones
    const Result<Shape> both = Broadcast(common, l.type(v).shape);
    if (both.ok()) common = *both;
    else l.Fail("indices that do not broadcast");
  }
  Dims dims;
  for (Dim d : common.dims()) dims.push_back(static_cast<uint32_t>(d.constant().value_or(1)));
  if (dims.empty()) dims.push_back(1);
  if (Numel(dims) == 0) l.Fail("an index without elements");
  return dims;
}

// The integers of `x` repeated to dims that they broadcast to.
Id Repeated(Lowering& l, Id x, const Dims& to) {
  Dims from = l.dims(x);
  while (from.size() < to.size()) from.insert(from.begin(), 1);
  x = l.Reshape(x, from);
  if (from == to) return x;
  std::vector<int64_t> times;
  for (size_t i = 0; i < to.size(); ++i) times.push_back(to[i] / from[i]);
  const Id tiled = l.Temp(to, kInt32);
  l.Op("Tile", {x}, {tiled}, {Uints("multiples", {static_cast<uint32_t>(times.size())}, times)});
  return tiled;
}

Id AsColumn(Lowering& l, Id x) {
  Dims column = l.dims(x);
  column.push_back(1);
  return l.Reshape(x, column);
}

// data[i0[j], i1[j], ...] for indices of the leading dims. The library accepts tables of 5 dims and fails when the graph is finalized, so the indices become
// rows.
void GatherSeveral(Lowering& l, const Node& n, std::span<const ValueId> indices) {
  if (std::find(indices.begin(), indices.end(), kNone) != indices.end()) return l.Fail("indexing of several dims at once that are not the first ones");
  const Dims to = CommonDims(l, indices), data = l.DimsOf(n.operands[0]);
  if (l.failed()) return;
  const uint32_t rows = static_cast<uint32_t>(Numel(to));
  std::vector<Id> columns;
  for (size_t i = 0; i < indices.size(); ++i) columns.push_back(l.Reshape(Repeated(l, IndexOf(l, indices[i], data[i]), to), {rows, 1}));
  const Id table = l.Temp({rows, static_cast<uint32_t>(columns.size())}, kInt32);
  l.Op("Concat", columns, {table}, {Uint("axis", 1)});
  Dims flat = {rows};
  flat.insert(flat.end(), data.begin() + static_cast<ptrdiff_t>(indices.size()), data.end());
  const Id y = l.Temp(flat, l.TypeOf(n.results[0]));
  Gather(l, n.operands[0], "GatherNd", table, Uint("batch_dims", 0), y);
  l.ReshapeInto(y, l.Out(n.results[0]));
}

void Index(Lowering& l, const Node& n) {
  const std::span<const ValueId> indices(n.operands.begin() + 1, n.operands.end());
  if (!NumbersOnly(l, indices)) return;
  size_t axis = indices.size();
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] == kNone) continue;
    if (axis != indices.size()) return GatherSeveral(l, n, indices);
    axis = i;
  }
  if (axis == indices.size()) return l.Fail("indexing without an index");
  GatherRows(l, n, IndexOf(l, indices[axis], l.DimsOf(n.operands[0])[axis]), axis);
}

// The numbers of the dims that are taken whole, for each row of a table of indices: [whole dims..., rows, whole].
Id WholeDims(Lowering& l, const Dims& table) {
  const size_t whole = table.size() - 1;
  const uint32_t rows = table.back();
  std::vector<int32_t> numbers;
  for (uint32_t i = 0; i < Numel(table); ++i) {
    uint32_t rest = i / rows;
    const size_t at = numbers.size();
    numbers.resize(at + whole);
    for (size_t d = whole; d-- > 0; rest /= table[d]) numbers[at + d] = static_cast<int32_t>(rest % table[d]);
  }
  Dims dims = table;
  dims.push_back(static_cast<uint32_t>(whole));
  return l.StaticInts(std::move(dims), numbers);
}

// What index_put writes: data[a, b, i0[j], i1[j], ...] = values[a, b, j, ...] for leading dims a, b that are taken whole.
void IndexPut(Lowering& l, const Node& n) {
  if (GetAttr(n, "accumulate").Bool()) return l.Fail("index_put that accumulates");
  std::span<const ValueId> indices(n.operands.begin() + 1, n.operands.end() - 1);
  if (!NumbersOnly(l, indices)) return;
  const Id self = l.In(n.operands[0]), values = l.In(n.operands.back());
  const Dims data = l.dims(self);
  while (!indices.empty() && indices.back() == kNone) indices = indices.first(indices.size() - 1);
  const size_t end = indices.size();
  const size_t whole = static_cast<size_t>(std::find_if(indices.begin(), indices.end(), [](ValueId v) { return v != kNone; }) - indices.begin());
  indices = indices.subspan(whole);
  if (indices.empty()) return l.Fail("index_put without an index");
  if (std::find(indices.begin(), indices.end(), kNone) != indices.end()) return l.Fail("index_put with a whole dim between indices");
  const Dims common = CommonDims(l, indices);
  if (l.failed()) return;
  // The table of indices: [whole dims..., rows, depth].
  Dims table(data.begin(), data.begin() + static_cast<ptrdiff_t>(whole));
  table.push_back(static_cast<uint32_t>(Numel(common)));
  std::vector<Id> columns;
  if (whole > 0) columns.push_back(WholeDims(l, table));
  for (size_t i = whole; i < end; ++i) {
    Dims row(whole, 1);
    row.push_back(table.back());
    const Id x = l.Reshape(Repeated(l, IndexOf(l, indices[i - whole], data[i]), common), row);
    columns.push_back(AsColumn(l, Repeated(l, x, table)));
  }
  Id where = columns[0];
  if (columns.size() > 1) {
    Dims dims = table;
    dims.push_back(static_cast<uint32_t>(end));
    where = l.Temp(dims, kInt32);
    l.Op("Concat", columns, {where}, {Uint("axis", dims.size() - 1)});
  }
  // The values: [whole dims..., rows, the other dims of data...].
  Dims update = table;
  update.insert(update.end(), data.begin() + static_cast<ptrdiff_t>(end), data.end());
  if (Numel(l.dims(values)) != Numel(update)) return l.Fail("index_put of values that must be broadcast");
  l.Op("ScatterNd", {self, where, l.Reshape(values, update)}, {l.Out(n.results[0])});
}

}  // namespace

LowerFn FindIndexing(OpId op) {
  switch (op) {
    case OpId::kEmbedding: return Embedding;
    case OpId::kIndexSelect: return IndexSelect;
    case OpId::kIndex: return Index;
    case OpId::kIndexPut: return IndexPut;
    default: return nullptr;
  }
}

}  // namespace dovetail::qnn
