#include "backends/qnn/lowering.h"

#include <cstring>

#include "base/check.h"

namespace dovetail::qnn {
namespace {

constexpr char kPackage[] = "qti.aisw";

QnnType StoredType(const TensorType& t, std::string* problem) {
  const bool per_tensor = t.per_tensor();
  switch (t.dtype) {
    case DType::kF32: return {abi::DataType::kFloat32};
    case DType::kF16: return {abi::DataType::kFloat16};
    case DType::kI32: return kInt32;
    case DType::kI64: return {abi::DataType::kInt64};
    case DType::kBool: return {abi::DataType::kBool8};
    case DType::kU8: return {per_tensor ? abi::DataType::kUfixed8 : abi::DataType::kUint8, per_tensor, t.quant.scale, t.quant.zero_point};
    case DType::kI8: return {per_tensor ? abi::DataType::kSfixed8 : abi::DataType::kInt8, per_tensor, t.quant.scale, t.quant.zero_point};
    case DType::kU16: return {per_tensor ? abi::DataType::kUfixed16 : abi::DataType::kUint16, per_tensor, t.quant.scale, t.quant.zero_point};
    case DType::kI16: return {per_tensor ? abi::DataType::kSfixed16 : abi::DataType::kInt16, per_tensor, t.quant.scale, t.quant.zero_point};
    default: *problem = StrCat("a tensor of ", Name(t.dtype)); return {};
  }
}

}  // namespace

size_t Width(abi::DataType t) {
  switch (t) {
    case abi::DataType::kInt64: return 8;
    case abi::DataType::kInt32:
    case abi::DataType::kUint32:
    case abi::DataType::kSfixed32:
    case abi::DataType::kFloat32: return 4;
    case abi::DataType::kInt16:
    case abi::DataType::kUint16:
    case abi::DataType::kSfixed16:
    case abi::DataType::kUfixed16:
    case abi::DataType::kFloat16: return 2;
    default: return 1;
  }
}

StoredRange RangeOf(abi::DataType t) {
  switch (t) {
    case abi::DataType::kSfixed8: return {-128, 127};
    case abi::DataType::kUfixed16: return {0, 65535};
    case abi::DataType::kSfixed16: return {-32768, 32767};
    default: return {0, 255};
  }
}

QnnParam Uint(std::string name, uint64_t v) { return {std::move(name), QnnParam::Kind::kUint32, static_cast<double>(v)}; }
QnnParam Int(std::string name, int64_t v) { return {std::move(name), QnnParam::Kind::kInt32, static_cast<double>(v)}; }
QnnParam Bool(std::string name, bool v) { return {std::move(name), QnnParam::Kind::kBool, v ? 1.0 : 0.0}; }
QnnParam Float(std::string name, double v) { return {std::move(name), QnnParam::Kind::kFloat, v}; }
QnnParam Uints(std::string name, Dims dims, std::vector<int64_t> v) { return {std::move(name), QnnParam::Kind::kUints, 0, std::move(dims), std::move(v)}; }
QnnParam Ints(std::string name, Dims dims, std::vector<int64_t> v) { return {std::move(name), QnnParam::Kind::kInts, 0, std::move(dims), std::move(v)}; }

std::vector<uint32_t> ToChannelsLast(size_t rank) {
  std::vector<uint32_t> perm = {0};
  for (uint32_t i = 2; i < rank; ++i) perm.push_back(i);
  perm.push_back(1);
  return perm;
}

std::vector<uint32_t> ToPlain(size_t rank) {
  std::vector<uint32_t> perm = {0, static_cast<uint32_t>(rank - 1)};
  for (uint32_t i = 1; i + 1 < rank; ++i) perm.push_back(i);
  return perm;
}

Lowering::Lowering(const Module& module, const Graph& graph, const Device& device, abi::Handle handle)
    : module_(module), graph_(graph), device_(device), handle_(handle) {}

void Lowering::Fail(std::string reason) {
  if (!failed()) reason_ = std::move(reason);
}

std::string Lowering::Unique(std::string name) {
  int& count = names_[name];
  if (count++ == 0) return name;
  std::string unique;
  do unique = StrCat(name, ".", count++ - 1);
  while (!names_.try_emplace(unique, 1).second);
  return unique;
}

Id Lowering::NewTensor(std::string name, Dims dims, QnnType type, abi::TensorKind kind) {
  tensors_.emplace_back();
  TensorData& t = tensors_.back();
  t.name = Unique(std::move(name));
  t.dims = std::move(dims);
  t.type = type;
  if (Numel(t.dims) == 0) Fail("a tensor without elements");
  const std::optional<abi::ScaleOffset> quantization =
      type.quantized ? std::optional(abi::ScaleOffset{type.scale, -type.zero_point}) : std::nullopt;
  t.abi = MakeTensor(t.name.c_str(), kind, type.data_type, quantization, t.dims);
  return static_cast<Id>(tensors_.size() - 1);
}

void Lowering::Create(Id id) {
  TensorData& t = tensors_[id];
  if (t.created || checking() || failed()) return;
  t.created = true;
  const Library& library = device_.library();
  if (Status s = library.Check(library.functions().tensor_create_graph_tensor(handle_, &t.abi), "QnnTensor_createGraphTensor"); !s.ok())
    Fail(StrCat(s.message(), " (tensor '", t.name, "')"));
}

Dims Lowering::DimsOf(ValueId v) {
  Dims dims;
  for (Dim d : type(v).shape.dims()) {
    if (!d.is_constant()) {
      Fail(StrCat("a tensor of shape [", type(v).shape.ToString(),
                  "]; its graphs are of fixed shapes: give them with --input-shape, or export without dynamic_shapes"));
      dims.push_back(1);
    } else if (d.value() > UINT32_MAX) {
      Fail(StrCat("a tensor of shape [", type(v).shape.ToString(), "], whose sizes need more than 32 bits"));
      dims.push_back(1);
    } else {
      dims.push_back(static_cast<uint32_t>(d.value()));
    }
  }
  if (dims.empty()) dims.push_back(1);
  return dims;
}

QnnType Lowering::TypeOf(ValueId v) {
  std::string problem;
  QnnType t = StoredType(type(v), &problem);
  if (!problem.empty()) Fail(problem);
  return t.data_type == abi::DataType::kInt64 ? kInt32 : t;
}

Id Lowering::Temp(Dims dims, QnnType type) { return NewTensor("t", std::move(dims), type, abi::TensorKind::kNative); }

Id Lowering::In(ValueId v, Order order) {
  if (auto it = bound_.find({v, order}); it != bound_.end()) return it->second;
  Id id = kNoId;
  if (const Constant* c = ConstantOf(v)) {
    id = ConstantIn(v, *c, order);
  } else if (const Order other = order == Order::kPlain ? Order::kChannelsLast : Order::kPlain; bound_.contains({v, other})) {
    const Id x = bound_.at({v, other});
    id = Transpose(x, order == Order::kPlain ? ToPlain(dims(x).size()) : ToChannelsLast(dims(x).size()));
  } else {
    // Only when checking: an operand that some node or caller makes.
    Dims dims = DimsOf(v);
    if (order == Order::kChannelsLast && dims.size() == 4) dims = {dims[0], dims[2], dims[3], dims[1]};
    id = NewTensor("x", dims, TypeOf(v), abi::TensorKind::kNative);
  }
  bound_[{v, order}] = id;
  return id;
}

Id Lowering::Out(ValueId v, Order order) {
  Dims dims = DimsOf(v);
  const std::string& name = graph_.value(v).name;
  if (order == Order::kChannelsLast && dims.size() == 4) dims = {dims[0], dims[2], dims[3], dims[1]};
  Id id;
  if (const auto it = outputs_.find(v); it != outputs_.end() && order == Order::kPlain && qnn_type(it->second) == TypeOf(v)) {
    id = it->second;
    outputs_.erase(it);
  } else {
    id = NewTensor(name.empty() ? StrCat("v", v) : name, std::move(dims), TypeOf(v), abi::TensorKind::kNative);
  }
  bound_[{v, order}] = id;
  return id;
}

void Lowering::Bind(ValueId v, Id id, Order order) { bound_[{v, order}] = id; }

bool Lowering::OnlyChannelsLast(ValueId v) const { return bound_.contains({v, Order::kChannelsLast}) && !bound_.contains({v, Order::kPlain}); }

Id Lowering::Reshape(Id x, const Dims& to) {
  if (dims(x) == to) return x;
  if (Numel(dims(x)) != Numel(to)) Fail("a reshape to another number of elements");
  const Id y = Temp(to, qnn_type(x));
  ReshapeInto(x, y);
  return y;
}

Id Lowering::Transpose(Id x, const std::vector<uint32_t>& perm) {
  Dims to;
  for (uint32_t p : perm) to.push_back(dims(x)[p]);
  const Id y = Temp(std::move(to), qnn_type(x));
  TransposeInto(x, perm, y);
  return y;
}

void Lowering::TransposeInto(Id x, const std::vector<uint32_t>& perm, Id to) {
  Op("Transpose", {x}, {to}, {Uints("perm", {static_cast<uint32_t>(perm.size())}, {perm.begin(), perm.end()})});
}

void Lowering::Op(std::string_view op, const std::vector<Id>& inputs, const std::vector<Id>& outputs, const std::vector<QnnParam>& params) {
  if (failed()) return;
  std::vector<abi::Param> list;
  for (const QnnParam& p : params) {
    abi::Param& a = list.emplace_back();
    std::memset(static_cast<void*>(&a), 0, sizeof a);
    a.name = p.name.c_str();
    if (p.kind == QnnParam::Kind::kUints || p.kind == QnnParam::Kind::kInts) {
      const bool is_signed = p.kind == QnnParam::Kind::kInts;
      const std::vector<uint32_t> words(p.numbers.begin(), p.numbers.end());
      const Id id = Static(p.dims, {is_signed ? abi::DataType::kInt32 : abi::DataType::kUint32}, [&] { return Bytes(words); });
      Create(id);
      a.kind = 1;
      a.tensor = tensors_[id].abi;
      continue;
    }
    a.kind = 0;
    switch (p.kind) {
      case QnnParam::Kind::kInt32: a.scalar = {abi::DataType::kInt32, {}}; a.scalar.i32 = static_cast<int32_t>(p.number); break;
      case QnnParam::Kind::kBool: a.scalar = {abi::DataType::kBool8, {}}; a.scalar.bool8 = p.number != 0; break;
      case QnnParam::Kind::kFloat: a.scalar = {abi::DataType::kFloat32, {}}; a.scalar.f32 = static_cast<float>(p.number); break;
      default: a.scalar = {abi::DataType::kUint32, {}}; a.scalar.u32 = static_cast<uint32_t>(p.number); break;
    }
  }
  const auto take = [&](const std::vector<Id>& ids) {
    std::vector<abi::Tensor> tensors;
    for (Id id : ids) {
      Create(id);
      tensors.push_back(tensors_[id].abi);
    }
    return tensors;
  };
  std::vector<abi::Tensor> in = take(inputs), out = take(outputs);
  if (failed()) return;
  const std::string name = Unique(std::string(op)), type(op);
  abi::OpConfig config;
  std::memset(static_cast<void*>(&config), 0, sizeof config);
  config.version = 1;
  config.v1 = {name.c_str(), kPackage, type.c_str(), static_cast<uint32_t>(list.size()), list.data(), static_cast<uint32_t>(in.size()), in.data(),
               static_cast<uint32_t>(out.size()), out.data()};
  const Library& library = device_.library();
  const abi::Functions& f = library.functions();
  const Status s = checking() ? library.Check(f.backend_validate_op_config(device_.backend(), config), "QnnBackend_validateOpConfig")
                              : library.Check(f.graph_add_node(handle_, config), "QnnGraph_addNode");
  if (!s.ok()) Fail(StrCat("no ", op, " of these types: ", s.message()));
}

// ExecuTorch's runtime finds the arguments by names of this form, and takes what has mutbuf_ in its name for a state inside the delegate.
std::string Lowering::ArgumentName(std::string_view side, size_t index, ValueId v) {
  std::string name = graph_.value(v).name;
  for (size_t at; (at = name.find("mutbuf_")) != std::string::npos;) name.erase(at + 6, 1);
  return StrCat(side, "_", index, "_", name);
}

void Lowering::BindArguments() {
  DT_CHECK(!checking());
  size_t count = 0;
  for (ValueId v : graph_.inputs) {
    std::string problem;
    const QnnType stored = StoredType(type(v), &problem);
    if (!problem.empty()) return Fail(problem);
    const Id id = NewTensor(ArgumentName("input", count++, v), DimsOf(v), stored, abi::TensorKind::kAppWrite);
    Create(id);
    bound_[{v, Order::kPlain}] = id;
  }
  count = 0;
  for (ValueId v : graph_.outputs) {
    std::string problem;
    const Id id = NewTensor(ArgumentName("output", count++, v), DimsOf(v), StoredType(type(v), &problem), abi::TensorKind::kAppRead);
    if (!problem.empty()) return Fail(problem);
    Create(id);
    if (!outputs_.emplace(v, id).second) return Fail("one value that leaves the region twice");
  }
  // Positions and token numbers are narrowed once, however many nodes read them.
  for (ValueId v : graph_.inputs) {
    if (type(v).dtype != DType::kI64) continue;
    const Id wide = bound_.at({v, Order::kPlain}), narrow = Temp(dims(wide), kInt32);
    Op("Cast", {wide}, {narrow});
    bound_[{v, Order::kPlain}] = narrow;
  }
}

void Lowering::Finish() {
  const std::map<ValueId, Id> left = std::move(outputs_);
  outputs_.clear();
  for (const auto& [v, output] : left) {
    if (failed()) return;
    if (const auto it = bound_.find({v, Order::kChannelsLast}); OnlyChannelsLast(v) && qnn_type(it->second) == qnn_type(output)) {
      TransposeInto(it->second, ToPlain(dims(it->second).size()), output);
    } else if (const Id x = In(v); qnn_type(x) == qnn_type(output)) {
      ReshapeInto(x, output);
    } else {
      Op("Cast", {x}, {output});
    }
  }
}

}  // namespace dovetail::qnn
