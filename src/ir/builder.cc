#include "ir/builder.h"

#include <algorithm>

#include <cstring>

#include "base/check.h"

namespace dovetail {

Result<std::vector<Attr>> FillAttrs(OpId op, NamedAttrs attrs) {
  const Schema& schema = GetSchema(op);
  std::vector<Attr> filled(static_cast<size_t>(schema.other_args));
  for (const SchemaArg& a : schema.args)
    if (!IsTensorKind(a.kind)) filled[static_cast<size_t>(a.index)] = a.default_value;
  for (const auto& [name, value] : attrs) {
    const SchemaArg* a = schema.Find(name);
    if (!a || IsTensorKind(a->kind)) return Internal("operator ", schema.name, " has no attribute '", name, "'");
    filled[static_cast<size_t>(a->index)] = value;
  }
  return filled;
}

Result<std::vector<TensorType>> InferTypes(const Module& module, const Graph& graph, OpId op, std::span<const ValueId> operands,
                                           std::span<const Attr> attrs, size_t num_results) {
  std::vector<TensorType> types, results(num_results);
  std::vector<TensorView> constants(operands.size());
  const bool integers = ComputesOnIntegers(op);
  for (size_t i = 0; i < operands.size(); ++i) {
    const ValueId v = operands[i];
    types.push_back(v == kNone ? TensorType() : integers ? graph.type(v) : Dequantized(graph.type(v)));
    // Contents only matter for small integer tensors (index lists).
    if (const Constant* c = v == kNone ? nullptr : GetConstant(module, graph, v); c && c->data_known && c->contiguous() && c->nbytes() <= 4096) {
      std::vector<int64_t> sizes;
      for (Dim d : c->type.shape.dims()) sizes.push_back(d.value());
      constants[i] = TensorView(c->type.dtype, sizes, const_cast<std::byte*>(c->bytes().data()));
    }
  }
  Status status = GetOp(op).infer({types, attrs, results, constants});
  if (!status.ok()) {
    std::string list;
    for (const TensorType& t : types) list += StrCat(list.empty() ? "" : ", ", t.dtype == DType::kNone ? "none" : t.ToString());
    return std::move(status).While(StrCat("inferring the type of ", GetOp(op).name, "(", list, ")"));
  }
  return results;
}

NodeId Builder::Append(OpId op) {
  const NodeId id = graph_.AddNode(op);
  graph_.node(id).location = location;
  order_->push_back(id);
  return id;
}

Result<std::vector<ValueId>> Builder::EmitWith(OpId op, std::vector<ValueId> operands, std::vector<Attr> attrs, size_t num_results) {
  DT_ASSIGN_OR_RETURN(std::vector<TensorType> types, InferTypes(module_, graph_, op, operands, attrs, num_results));
  const NodeId id = Append(op);
  graph_.node(id).operands = std::move(operands);
  graph_.node(id).attrs = std::move(attrs);
  std::vector<ValueId> results;
  for (TensorType& t : types) results.push_back(graph_.AddResult(id, std::move(t)));
  return results;
}

Result<std::vector<ValueId>> Builder::EmitAll(OpId op, std::vector<ValueId> operands, NamedAttrs attrs) {
  DT_ASSIGN_OR_RETURN(std::vector<Attr> filled, FillAttrs(op, attrs));
  return EmitWith(op, std::move(operands), std::move(filled), GetSchema(op).results.size());
}

Result<ValueId> Builder::Emit(OpId op, std::vector<ValueId> operands, NamedAttrs attrs) {
  DT_ASSIGN_OR_RETURN(std::vector<ValueId> results, EmitAll(op, std::move(operands), attrs));
  return results[0];
}

ValueId Builder::Const(uint32_t constant) {
  const NodeId id = Append(OpId::kConst);
  graph_.node(id).ref = constant;
  return graph_.AddResult(id, module_.constants[constant].type);
}

std::string UniqueConstantName(const Module& module, const std::string& base) {
  std::string name = base;
  const auto taken = [&](const Constant& c) { return c.name == name; };
  for (size_t i = module.constants.size(); std::any_of(module.constants.begin(), module.constants.end(), taken); ++i) name = StrCat(base, "_", i);
  return name;
}

ValueId Builder::AddConst(std::string name, TensorType type, std::vector<std::byte> data) {
  module_.constants.push_back(MakeOwnedConstant(UniqueConstantName(module_, name), std::move(type), std::move(data)));
  return Const(static_cast<uint32_t>(module_.constants.size() - 1));
}

ValueId Builder::Splat(double value, DType dtype, Shape shape) {
  const size_t n = static_cast<size_t>(shape.numel().constant().value_or(0));
  DType source = DType::kF64;
  // One f64 read with zero strides and converted: the same path as a cast of a weight.
  std::vector<std::byte> bytes(sizeof value);
  std::memcpy(bytes.data(), &value, sizeof value);
  Constant c = MakeOwnedConstant("splat", TensorType(source, {}), std::move(bytes));
  c.type = TensorType(dtype, shape);
  c.strides.assign(shape.rank(), 0);
  std::vector<std::byte> data(n * ByteSize(dtype));
  c.CopyTo(data.data());
  return AddConst(StrCat("splat.", FormatDouble(value), ".", Name(dtype)), TensorType(dtype, shape), std::move(data));
}

ValueId Builder::Ints(std::span<const int64_t> values) {
  std::vector<std::byte> data(values.size_bytes());
  if (!data.empty()) std::memcpy(data.data(), values.data(), data.size());
  return AddConst("ints", TensorType(DType::kI64, {Dim(static_cast<int64_t>(values.size()))}), std::move(data));
}

ValueId Builder::ReadState(uint32_t state) {
  const NodeId id = Append(OpId::kStateRead);
  graph_.node(id).ref = state;
  return graph_.AddResult(id, module_.states[state].type);
}

void Builder::WriteState(uint32_t state, ValueId value) {
  const NodeId id = Append(OpId::kStateWrite);
  graph_.node(id).ref = state;
  graph_.node(id).operands = {value};
}

}  // namespace dovetail
