#include "import/alias.h"

#include <algorithm>

#include "ops/infer_util.h"

namespace dovetail::pt2 {
namespace {

constexpr uint32_t kMaxViewDepth = 256;

// Byte range [first, last) of the storage that a stored tensor touches; its view was checked.
std::pair<int64_t, int64_t> Extent(const TensorMeta& meta) {
  int64_t low = meta.offset.value(), high = low;
  for (Dim d : meta.sizes)
    if (d == Dim(0)) return {0, 0};
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    const int64_t reach = meta.strides[i].value() * (meta.sizes[i].value() - 1);
    (reach < 0 ? low : high) += reach;
  }
  const int64_t item = static_cast<int64_t>(ByteSize(meta.dtype));
  return {low * item, (high + 1) * item};
}

Result<TensorType> InferView(const TensorType& from, const TensorType* index, OpId op, const std::vector<Attr>& attrs) {
  const TensorType operands[] = {from, index ? *index : TensorType()};
  TensorType result;
  DT_RETURN_IF_ERROR(GetOp(op).infer({{operands, index ? 2u : 1u}, attrs, {&result, 1}, {}}));
  return result;
}

}  // namespace

TensorId AliasTable::Add(Storage storage, TensorType type, bool is_complex) {
  const TensorId id = static_cast<TensorId>(tensors_.size());
  Tensor t;
  t.storage = static_cast<uint32_t>(storages_.size());
  t.type = std::move(type);
  t.value = storage.value;
  t.is_complex = is_complex;
  storage.root = id;
  storages_.push_back(std::move(storage));
  tensors_.push_back(std::move(t));
  return id;
}

TensorId AliasTable::AddTemporary(ValueId value, bool is_complex) {
  Storage s;
  s.value = value;
  return Add(std::move(s), graph_.type(value), is_complex);
}

TensorId AliasTable::AddInput(ValueId value) {
  Storage s;
  s.kind = Storage::kInput;
  s.value = s.initial = value;
  return Add(std::move(s), graph_.type(value), false);
}

Result<TensorId> AliasTable::AddStored(std::string_view name, const StoredTensor& stored) {
  const TensorMeta& meta = stored.meta;
  if (meta.dtype == DType::kNone) return Unsupported("tensor '", name, "' has dtype ", DTypeNameInFile(meta.dtype_number), ", which is not supported");
  if (meta.sizes.size() != meta.strides.size()) return Corrupt("tensor '", name, "' has ", meta.sizes.size(), " sizes and ", meta.strides.size(), " strides");
  const bool is_complex = IsComplex(meta.dtype);
  if (meta.sizes.size() + is_complex > kMaxRank)
    return Unsupported("tensor '", name, "' has rank ", meta.sizes.size(), "; at most ", kMaxRank - is_complex, " is supported");
  std::string key = StrCat(stored.path, "|", meta.dtype_number, "|", meta.offset.ToString());
  TensorType type(is_complex ? DType::kF32 : meta.dtype, Shape(meta.sizes));
  for (size_t i = 0; i < meta.sizes.size(); ++i) {
    if (!meta.sizes[i].is_constant() || !meta.strides[i].is_constant() || !meta.offset.is_constant())
      return Corrupt("tensor '", name, "' of the file has a symbolic size");
    key += StrCat("|", meta.sizes[i].value(), ":", meta.strides[i].value());
  }
  if (is_complex) type.shape.push_back(2);
  if (auto it = stored_.find(key); it != stored_.end()) return it->second;
  Storage s;
  s.kind = Storage::kStored;
  s.name = name;
  s.stored = &stored;
  const TensorId id = Add(std::move(s), std::move(type), is_complex);
  // The view is checked here, so that nothing later meets one that leaves its storage.
  DT_RETURN_IF_ERROR(MakeStoredConstant(storages_.back(), tensors_[id]).status().Clone());
  stored_.emplace(std::move(key), id);
  return id;
}

Result<Constant> AliasTable::MakeStoredConstant(const Storage& s, const Tensor& root) const {
  const TensorMeta& meta = s.stored->meta;
  std::vector<int64_t> strides;
  int64_t offset = meta.offset.value();
  for (Dim d : meta.strides) strides.push_back(d.value());
  if (root.is_complex) {
    bool fits = !__builtin_mul_overflow(offset, int64_t{2}, &offset);
    for (int64_t& stride : strides) fits = fits && !__builtin_mul_overflow(stride, int64_t{2}, &stride);
    if (!fits) return Corrupt("tensor '", s.name, "' has an impossible stride");
    strides.push_back(1);
  }
  return MakeConstant(s.name, root.type, root.type.dtype, s.stored->storage, std::move(strides), offset);
}

Result<TensorId> AliasTable::AddView(TensorId parent, ViewStep step) {
  if (tensors_[parent].depth >= kMaxViewDepth) return Unsupported("a chain of more than ", kMaxViewDepth, " views");
  const TensorType* index = step.index == kNone ? nullptr : &graph_.type(step.index);
  DT_ASSIGN_OR_RETURN(TensorType type, InferView(tensors_[parent].type, index, step.op, step.attrs));
  if (step.op == OpId::kView || step.op == OpId::kExpand) step.attrs[0] = DimsOf(type.shape);
  // A view of the whole in the same shape is the tensor itself.
  const bool same_shape = type == tensors_[parent].type && step.op != OpId::kPermute && step.op != OpId::kIndexSelect;
  Tensor t;
  t.storage = tensors_[parent].storage;
  t.is_complex = tensors_[parent].is_complex;
  t.location = builder_.location;
  t.version = UINT32_MAX;  // not read yet
  t.depth = tensors_[parent].depth + 1;
  if (same_shape) {
    t.parent = tensors_[parent].parent;
    t.step = tensors_[parent].step;
    t.value = tensors_[parent].value;
    t.version = tensors_[parent].version;
    t.location = tensors_[parent].location;
  } else {
    t.parent = parent;
    t.step = std::move(step);
  }
  t.type = std::move(type);
  tensors_.push_back(std::move(t));
  return static_cast<TensorId>(tensors_.size() - 1);
}

TensorId AliasTable::AsComplex(TensorId of, bool is_complex) {
  Tensor t = tensors_[of];
  t.is_complex = is_complex;
  t.name = {};
  tensors_.push_back(std::move(t));
  return static_cast<TensorId>(tensors_.size() - 1);
}

void AliasTable::SetName(TensorId t, std::string_view name, uint32_t location) {
  Tensor& tensor = tensors_[t];
  if (tensor.name.empty()) tensor.name = name;
  if (tensor.location == kNone) tensor.location = location;
  const bool read = tensor.value != kNone && tensor.version == storages_[tensor.storage].version;
  if (read && graph_.value(tensor.value).name.empty()) graph_.value(tensor.value).name = tensor.name;
}

Result<ValueId> AliasTable::ReadStored(Storage& s) {
  const Tensor& root = tensors_[s.root];
  DT_ASSIGN_OR_RETURN(Constant c, MakeStoredConstant(s, root));
  s.constant = static_cast<uint32_t>(module_.constants.size());
  module_.constants.push_back(std::move(c));
  s.initial = s.value = builder_.Const(s.constant);
  graph_.value(s.value).name = root.name;
  return s.value;
}

Result<ValueId> AliasTable::Read(TensorId id) {
  Tensor& t = tensors_[id];
  Storage& s = storages_[t.storage];
  if (t.value != kNone && t.version == s.version) return t.value;
  const uint32_t outer = builder_.location;
  if (t.parent == kNone) {
    if (s.value == kNone) {
      auto v = ReadStored(s);
      if (!v.ok()) return v;
    }
    t.value = s.value;
  } else {
    DT_ASSIGN_OR_RETURN(const ValueId parent, Read(t.parent));
    if (t.location != kNone) builder_.location = t.location;
    std::vector<ValueId> operands = {parent};
    if (t.step.index != kNone) operands.push_back(t.step.index);
    auto results = builder_.EmitWith(t.step.op, std::move(operands), t.step.attrs);
    builder_.location = outer;
    if (!results.ok()) return std::move(results).status();
    t.value = (*results)[0];
    if (t.version == UINT32_MAX) graph_.value(t.value).name = t.name;
  }
  t.version = s.version;
  return t.value;
}

// The value of the parent of `t` after `t` was given `value`.
Result<ValueId> AliasTable::Scatter(const Tensor& t, ValueId value) {
  const Shape& shape = tensors_[t.parent].type.shape;
  switch (t.step.op) {
    case OpId::kView: return builder_.Emit(OpId::kView, {value}, {{"size", DimsOf(shape)}});
    case OpId::kPermute: {
      std::vector<Dim> inverse(shape.rank());
      const std::vector<Dim>& dims = t.step.attrs[0].Dims();
      for (size_t i = 0; i < dims.size(); ++i) inverse[static_cast<size_t>(dims[i].value())] = static_cast<int64_t>(i);
      return builder_.Emit(OpId::kPermute, {value}, {{"dims", std::move(inverse)}});
    }
    case OpId::kSlice: {
      DT_ASSIGN_OR_RETURN(const ValueId parent, Read(t.parent));
      DT_ASSIGN_OR_RETURN(const std::vector<ValueId> results, builder_.EmitWith(OpId::kSliceScatter, {parent, value}, t.step.attrs));
      return results[0];
    }
    case OpId::kIndexSelect: {
      DT_ASSIGN_OR_RETURN(const ValueId parent, Read(t.parent));
      std::vector<ValueId> operands = {parent};
      operands.resize(1 + static_cast<size_t>(t.step.attrs[0].Int()), kNone);
      operands.push_back(t.step.index);
      operands.push_back(value);
      return builder_.Emit(OpId::kIndexPut, std::move(operands));
    }
    default: return Unsupported("a write into an expanded tensor, whose elements share memory");
  }
}

Status AliasTable::Write(TensorId id, ValueId value) {
  if (graph_.type(value) != tensors_[id].type)
    return Internal("a write of ", graph_.type(value).ToString(), " to a tensor of ", tensors_[id].type.ToString());
  TensorId at = id;
  ValueId v = value;
  for (; tensors_[at].parent != kNone; at = tensors_[at].parent) {
    DT_ASSIGN_OR_RETURN(v, Scatter(tensors_[at], v));
  }
  Storage& s = storages_[tensors_[at].storage];
  if (s.folded)
    return Unsupported("a write to '", s.name,
                       "', whose contents are computed with as a constant before (a model exported in training mode?); export it after model.eval()");
  s.value = v;
  ++s.version;
  s.writer = writer_;
  s.written_at = builder_.location;
  tensors_[at].value = v;
  tensors_[at].version = s.version;
  tensors_[id].value = value;
  tensors_[id].version = s.version;
  return OkStatus();
}

void AliasTable::MarkFolded(ValueId v) {
  for (Storage& s : storages_)
    if (s.kind == Storage::kStored && s.initial == v) s.folded = true;
}

std::vector<TensorId> AliasTable::WrittenInputs() const {
  std::vector<TensorId> written;
  for (const Storage& s : storages_)
    if (s.kind == Storage::kInput && s.version > 0) written.push_back(s.root);
  return written;
}

Status AliasTable::CheckOverlap(const Storage& written) const {
  const auto [first, last] = Extent(written.stored->meta);
  for (const Storage& other : storages_) {
    if (&other == &written || other.kind != Storage::kStored || (other.initial == kNone && other.version == 0)) continue;
    if (other.stored->path != written.stored->path) continue;
    const auto [a, b] = Extent(other.stored->meta);
    if (a < last && first < b)
      return Unsupported("'", written.name, "', which the model writes, shares memory with '", other.name,
                         "' in another shape; register one buffer and take views of it in forward");
  }
  return OkStatus();
}

Status AliasTable::MakeStates() {
  std::unordered_map<NodeId, size_t> position;
  for (size_t i = 0; i < graph_.order.size(); ++i) position.emplace(graph_.order[i], i + 1);
  auto after = [&](ValueId v) {
    const NodeId producer = v == kNone ? kNone : graph_.value(v).producer;
    return producer == kNone ? size_t{0} : position.at(producer);
  };
  std::vector<std::pair<size_t, NodeId>> writes;  // how many nodes of `order` come before it
  for (const Storage& s : storages_) {
    if (s.kind != Storage::kStored || s.version == 0) continue;
    if (Status status = CheckOverlap(s); !status.ok()) {
      if (s.writer)
        status = std::move(status).At(StrCat("%", s.writer->name, " = ", s.writer->target),
                                      s.written_at == kNone ? "" : module_.locations[s.written_at].source);
      else if (const Node* n = graph_.producer(s.value)) status = std::move(status).At(DescribeNode(graph_, *n), DescribeSource(module_, *n));
      return status;
    }
    const uint32_t state = static_cast<uint32_t>(module_.states.size());
    DT_ASSIGN_OR_RETURN(Constant initial, MakeStoredConstant(s, tensors_[s.root]));
    module_.states.push_back({s.name, initial.type, std::move(initial)});
    if (s.initial != kNone) {
      Node& read = graph_.node(graph_.value(s.initial).producer);
      read.op = OpId::kStateRead;
      read.ref = state;
    }
    const NodeId write = graph_.AddNode(OpId::kStateWrite);
    graph_.node(write).ref = state;
    graph_.node(write).operands = {s.value};
    if (const Node* producer = graph_.producer(s.value)) graph_.node(write).location = producer->location;
    // Right after its value, but not before the read of the old contents.
    writes.emplace_back(std::max(after(s.value), after(s.initial)), write);
  }
  std::stable_sort(writes.begin(), writes.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<NodeId> order;
  order.reserve(graph_.order.size() + writes.size());
  size_t next = 0;
  for (size_t i = 0; i <= graph_.order.size(); ++i) {
    for (; next < writes.size() && writes[next].first == i; ++next) order.push_back(writes[next].second);
    if (i < graph_.order.size()) order.push_back(graph_.order[i]);
  }
  graph_.order = std::move(order);
  return OkStatus();
}

void AliasTable::DropUnusedConstants() {
  std::vector<uint32_t> renamed(module_.constants.size(), kNone);
  std::vector<Constant> kept;
  for (NodeId id : graph_.order) {
    Node& n = graph_.node(id);
    if (n.op != OpId::kConst) continue;
    if (renamed[n.ref] == kNone) {
      renamed[n.ref] = static_cast<uint32_t>(kept.size());
      kept.push_back(std::move(module_.constants[n.ref]));
    }
    n.ref = renamed[n.ref];
  }
  module_.constants = std::move(kept);
}

Status AliasTable::Finish() {
  DT_RETURN_IF_ERROR(MakeStates());
  graph_.RemoveDeadNodes();
  DropUnusedConstants();
  return OkStatus();
}

}  // namespace dovetail::pt2
