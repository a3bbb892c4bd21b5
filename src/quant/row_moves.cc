#include "quant/row_moves.h"

#include "ops/op_def.h"

namespace dovetail {
namespace {

// Whether `dim` names the last of `rank` dims.
bool IsLast(const Attr& dim, size_t rank) {
  const int64_t d = dim.Int(), r = static_cast<int64_t>(rank);
  return d == -1 || d == r - 1;
}

Dim Width(const TensorType& t) { return t.rank() ? t.shape.back() : Dim(1); }

Attr SizesOf(const Shape& shape) { return std::vector<Dim>(shape.begin(), shape.end()); }

// How many indices an index or index_put has.
size_t NumIndices(const Node& n) { return n.operands.size() - (n.op == OpId::kIndexPut ? 2 : 1); }

// Whether an index or index_put leaves the last dim whole.
bool IndexesRows(const Graph& g, const Node& n) {
  const size_t rank = g.type(n.operands[0]).rank(), count = NumIndices(n);
  size_t dims = 0;  // that the indices reach
  for (size_t i = 1; i <= count; ++i) {
    const bool mask = n.operands[i] != kNone && g.type(n.operands[i]).dtype == DType::kBool;
    dims += mask ? g.type(n.operands[i]).rank() : 1;
    if (n.operands[i] != kNone && dims >= rank) return false;
  }
  return true;
}

// Whether a condition is the same along the last dim of the values.
bool IsOfRows(const Module& module, const Graph& g, ValueId condition) {
  if (Width(g.type(condition)) == Dim(1)) return true;
  if (const Node* expand = g.producer_if(condition, OpId::kExpand)) return Width(g.type(expand->operands[0])) == Dim(1);
  const Constant* c = GetConstant(module, g, condition);
  return c && !c->recipe && c->strides.back() == 0;
}

class Mover {
 public:
  Mover(RewriteContext& c, NodeId id)
      : b_(c.builder), graph_(c.graph), op_(c.graph.node(id).op), operands_(c.graph.node(id).operands), attrs_(c.graph.node(id).attrs),
        type_(c.graph.type(c.graph.node(id).results[0])) {}

  Result<RowPair> Run() {
    switch (op_) {
      case OpId::kIndexPut: return EachOf({0, operands_.size() - 1});
      case OpId::kWhere: return Where();
      case OpId::kCat: {
        std::vector<size_t> all(operands_.size());
        for (size_t i = 0; i < all.size(); ++i) all[i] = i;
        return EachOf(all);
      }
      case OpId::kSliceScatter: return EachOf({0, 1});
      case OpId::kView:
      case OpId::kExpand: {
        DT_ASSIGN_OR_RETURN(const RowPair from, Whole(operands_[0]));
        Shape scales = type_.shape;
        scales[scales.rank() - 1] = 1;
        RowPair to;
        DT_ASSIGN_OR_RETURN(to.rows, b_.Emit(op_, {from.rows}, {{"size", SizesOf(type_.shape)}}));
        DT_ASSIGN_OR_RETURN(to.scale, b_.Emit(op_, {from.scale}, {{"size", SizesOf(scales)}}));
        return to;
      }
      default: return EachOf({0});
    }
  }

 private:
  // `v` as a pair with rows of the result's width.
  Result<RowPair> Whole(ValueId v) {
    if (const auto pair = PairOf(graph_, v)) return *pair;
    const Dim width = type_.shape.back();
    if (b_.type(v).rank() == 0) {
      DT_ASSIGN_OR_RETURN(v, b_.Emit(OpId::kView, {v}, {{"size", Attr::Ints({1})}}));
    }
    if (Shape shape = b_.type(v).shape; shape.back() != width) {
      shape[shape.rank() - 1] = width;
      DT_ASSIGN_OR_RETURN(v, b_.Emit(OpId::kExpand, {v}, {{"size", SizesOf(shape)}}));
    }
    return QuantizeRows(b_, v);
  }

  // The node once for the rows and once for the scales.
  Result<RowPair> EachOf(const std::vector<size_t>& row_operands) {
    std::vector<ValueId> rows = operands_, scales = operands_;
    for (size_t i : row_operands) {
      DT_ASSIGN_OR_RETURN(const RowPair pair, Whole(operands_[i]));
      rows[i] = pair.rows;
      scales[i] = pair.scale;
    }
    DT_ASSIGN_OR_RETURN(const std::vector<ValueId> r, b_.EmitWith(op_, std::move(rows), attrs_));
    DT_ASSIGN_OR_RETURN(const std::vector<ValueId> s, b_.EmitWith(op_, std::move(scales), attrs_));
    return RowPair{r[0], s[0]};
  }

  Result<RowPair> Where() {
    ValueId condition = operands_[0];
    if (Width(b_.type(condition)) != Dim(1)) {
      DT_ASSIGN_OR_RETURN(condition, b_.Emit(OpId::kSlice, {condition}, {{"dim", -1}, {"start", 0}, {"end", 1}}));
    }
    DT_ASSIGN_OR_RETURN(const RowPair yes, Whole(operands_[1]));
    DT_ASSIGN_OR_RETURN(const RowPair no, Whole(operands_[2]));
    RowPair pair;
    DT_ASSIGN_OR_RETURN(pair.rows, b_.Emit(OpId::kWhere, {condition, yes.rows, no.rows}));
    DT_ASSIGN_OR_RETURN(pair.scale, b_.Emit(OpId::kWhere, {condition, yes.scale, no.scale}));
    return pair;
  }

  Builder& b_;
  const Graph& graph_;
  const OpId op_;
  const std::vector<ValueId> operands_;  // copies: nodes move when others are made
  const std::vector<Attr> attrs_;
  const TensorType type_;
};

}  // namespace

std::optional<RowPair> PairOf(const Graph& graph, ValueId v) {
  const Node* n = graph.producer_if(v, OpId::kDequantizeRows);
  return n ? std::optional(RowPair{n->operands[0], n->operands[1]}) : std::nullopt;
}

Result<RowPair> QuantizeRows(Builder& builder, ValueId v) {
  DT_ASSIGN_OR_RETURN(const std::vector<ValueId> pair, builder.EmitAll(OpId::kQuantizeRows, {v}));
  return RowPair{pair[0], pair[1]};
}

std::vector<size_t> RowOperands(const Module& module, const Graph& graph, const Node& n) {
  if (n.results.size() != 1 || n.operands.empty()) return {};
  const TensorType& to = graph.type(n.results[0]);
  if (to.dtype != DType::kF32 || to.rank() == 0 || to.shape.back() == Dim(1)) return {};
  const auto along_last = [&] { return IsLast(GetAttr(n, "dim"), to.rank()); };
  const auto same_width = [&] { return graph.type(n.operands[0]).rank() != 0 && Width(graph.type(n.operands[0])) == to.shape.back(); };
  std::vector<size_t> rows;
  switch (n.op) {
    case OpId::kClone: rows = {0}; break;
    case OpId::kView:
    case OpId::kExpand:
      if (same_width()) rows = {0};
      break;
    case OpId::kPermute:
      if (IsLast(Attr(GetAttr(n, "dims").Dims().back()), to.rank())) rows = {0};
      break;
    case OpId::kSlice:
    case OpId::kIndexSelect:
      if (same_width() && graph.type(n.operands[0]).rank() == to.rank() && !along_last()) rows = {0};
      break;
    case OpId::kIndex:
      if (IndexesRows(graph, n)) rows = {0};
      break;
    case OpId::kSliceScatter:
      if (!along_last()) rows = {0, 1};
      break;
    case OpId::kIndexPut:
      if (IndexesRows(graph, n) && !GetAttr(n, "accumulate").Bool()) rows = {0, n.operands.size() - 1};
      break;
    case OpId::kWhere:
      if (IsOfRows(module, graph, n.operands[0])) rows = {1, 2};
      break;
    case OpId::kCat:
      if (along_last()) break;
      for (size_t i = 0; i < n.operands.size(); ++i) rows.push_back(i);
      break;
    default: break;
  }
  for (size_t i : rows)
    if (graph.type(n.operands[i]).dtype != DType::kF32 || (n.op == OpId::kCat && graph.type(n.operands[i]).rank() != to.rank())) return {};
  return rows;
}

Result<RowPair> MovePairs(RewriteContext& c, NodeId id) { return Mover(c, id).Run(); }

}  // namespace dovetail
