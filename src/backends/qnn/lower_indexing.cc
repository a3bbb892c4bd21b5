// Rows by run-time numbers: Gather and ScatterNd.
#include <algorithm>

#include "backends/qnn/lowering.h"
#include "ops/infer_util.h"

namespace dovetail::qnn {
namespace {

uint32_t Product(std::span<const uint32_t> dims) {
  uint32_t n = 1;
  for (uint32_t d : dims) n *= d;
  return n;
}

// Operands are self, one index for each leading dim (kNone: all of it), and more. Numbers must not be bools.
bool NumbersOnly(Lowering& l, std::span<const ValueId> indices) {
  for (ValueId v : indices)
    if (v != kNone && l.type(v).dtype != DType::kI64 && l.type(v).dtype != DType::kI32) {
      l.Fail(StrCat("indexing by a tensor of ", Name(l.type(v).dtype)));
      return false;
    }
  return true;
}

// Gathering has no form for bools, which are integers on the way.
void Gather(Lowering& l, const Node& n, std::string_view op, ValueId table, Id index, const QnnParam& param) {
  const Id x = l.In(table);
  if (l.qnn_type(x).data_type != abi::DataType::kBool8) return l.Op(op, {x, index}, {l.Out(n.results[0])}, {param});
  const Id integers = l.Temp(l.dims(x), kInt32), taken = l.Temp(l.DimsOf(n.results[0]), kInt32);
  l.Op("Cast", {x}, {integers});
  l.Op(op, {integers, index}, {taken}, {param});
  l.Op("Cast", {taken}, {l.Out(n.results[0])});
}

void GatherAt(Lowering& l, const Node& n, ValueId table, ValueId index, size_t axis) {
  Gather(l, n, "Gather", table, l.In(index), Int("axis", static_cast<int64_t>(axis)));
}

void Embedding(Lowering& l, const Node& n) { GatherAt(l, n, n.operands[0], n.operands[1], 0); }

void IndexSelect(Lowering& l, const Node& n) {
  const Result<size_t> axis = NormalizeAxis(GetAttr(n, "dim").Int(), l.type(n.operands[0]).rank());
  if (!axis.ok()) return l.Fail("a selection along a bad dimension");
  GatherAt(l, n, n.operands[0], n.operands[1], *axis);
}

// The integers of an index as a column [dims..., 1] of the shape that all indices broadcast to.
Id Column(Lowering& l, Id x, const Dims& to) {
  Dims from = l.dims(x);
  while (from.size() < to.size()) from.insert(from.begin(), 1);
  std::vector<int64_t> times;
  bool more = false;
  for (size_t i = 0; i < to.size(); ++i) {
    times.push_back(to[i] / from[i]);
    more |= from[i] != to[i];
  }
  x = l.Reshape(x, from);
  if (more) {
    const Id tiled = l.Temp(to, kInt32);
    l.Op("Tile", {x}, {tiled}, {Uints("multiples", {static_cast<uint32_t>(times.size())}, times)});
    x = tiled;
  }
  Dims column = to;
  column.push_back(1);
  return l.Reshape(x, column);
}

// data[i0[j], i1[j], ...] for indices of the leading dims.
void GatherSeveral(Lowering& l, const Node& n, std::span<const ValueId> indices) {
  std::vector<Shape> shapes;
  Shape common;
  for (ValueId v : indices) {
    if (v == kNone) return l.Fail("indexing of several dims at once that are not the first ones");
    const Result<Shape> both = Broadcast(common, l.type(v).shape);
    if (!both.ok()) return l.Fail("indices that do not broadcast");
    common = *both;
  }
  Dims to;
  for (Dim d : common.dims()) to.push_back(static_cast<uint32_t>(d.constant().value_or(0)));
  if (to.empty()) to.push_back(1);
  std::vector<Id> columns;
  for (ValueId v : indices) columns.push_back(Column(l, l.In(v), to));
  if (l.failed()) return;
  to.push_back(static_cast<uint32_t>(columns.size()));
  const Id table = l.Temp(to, kInt32);
  l.Op("Concat", columns, {table}, {Uint("axis", to.size() - 1)});
  Gather(l, n, "GatherNd", n.operands[0], table, Uint("batch_dims", 0));
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
  GatherAt(l, n, n.operands[0], indices[axis], axis);
}

// What index_put writes: data[a, b, i0[j], i1[j], ...] = values[a, b, j, ...] for leading dims a, b that are taken whole.
void IndexPut(Lowering& l, const Node& n) {
  if (GetAttr(n, "accumulate").Bool()) return l.Fail("index_put that accumulates");
  const std::span<const ValueId> indices(n.operands.begin() + 1, n.operands.end() - 1);
  if (!NumbersOnly(l, indices)) return;
  const Id self = l.In(n.operands[0]);
  Id values = l.In(n.operands.back());
  const Dims data = l.dims(self);
  size_t whole = 0, end = indices.size();
  while (end > 0 && indices[end - 1] == kNone) --end;
  while (whole < end && indices[whole] == kNone) ++whole;
  if (whole == end) return l.Fail("index_put without an index");
  if (std::find(indices.begin() + static_cast<ptrdiff_t>(whole), indices.begin() + static_cast<ptrdiff_t>(end), kNone) !=
      indices.begin() + static_cast<ptrdiff_t>(end))
    return l.Fail("index_put with a whole dim between indices");
  Dims broadcast;
  for (size_t i = whole; i < end; ++i) {
    const Dims d = l.DimsOf(indices[i]);
    if (broadcast.empty()) broadcast = d;
    if (Product(d) != 1 && Product(d) != Product(broadcast)) return l.Fail("index_put with indices of different shapes");
    if (Product(d) > Product(broadcast)) broadcast = d;
  }
  const uint32_t rows = Product(broadcast), depth = static_cast<uint32_t>(end);
  // The table of indices: [whole dims..., rows, depth].
  Dims table(data.begin(), data.begin() + static_cast<ptrdiff_t>(whole));
  table.push_back(rows);
  const uint32_t count = Product(table);
  std::vector<Id> columns;
  if (whole > 0) {
    std::vector<int32_t> numbers;
    for (uint32_t i = 0; i < count; ++i) {
      uint32_t rest = i / rows;
      std::vector<int32_t> at(whole);
      for (size_t d = whole; d-- > 0;) {
        at[d] = static_cast<int32_t>(rest % data[d]);
        rest /= data[d];
      }
      numbers.insert(numbers.end(), at.begin(), at.end());
    }
    Dims dims = table;
    dims.push_back(static_cast<uint32_t>(whole));
    columns.push_back(l.StaticInts(std::move(dims), numbers));
  }
  for (size_t i = whole; i < end; ++i) {
    const Id x = l.In(indices[i]);
    Dims dims(whole, 1);
    dims.push_back(Product(l.dims(x)));
    columns.push_back(Column(l, l.Reshape(x, dims), table));
  }
  Id where = columns[0];
  if (columns.size() > 1) {
    Dims dims = table;
    dims.push_back(depth);
    where = l.Temp(dims, kInt32);
    l.Op("Concat", columns, {where}, {Uint("axis", dims.size() - 1)});
  }
  // The values: [whole dims..., rows, the other dims of data...].
  Dims update = table;
  update.insert(update.end(), data.begin() + static_cast<ptrdiff_t>(end), data.end());
  if (Product(l.dims(values)) != Product(update)) return l.Fail("index_put of values that must be broadcast");
  values = l.Reshape(values, update);
  l.Op("ScatterNd", {self, where, values}, {l.Out(n.results[0])});
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
