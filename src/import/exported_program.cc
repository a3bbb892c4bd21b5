#include "import/exported_program.h"

#include <cmath>

#include "import/sympy_expr.h"

namespace dovetail::pt2 {
namespace {

constexpr int64_t kSchemaMajor = 8;
constexpr std::string_view kOpsPrefix = "torch.ops.";

// torch/_export/serde/schema.py numbers dtypes by a list of its own.
struct DTypeRow {
  std::string_view name;
  DType dtype;
};
constexpr DTypeRow kDTypes[] = {
    {"unknown", DType::kNone},     {"uint8", DType::kU8},      {"int8", DType::kI8},       {"int16", DType::kI16},    {"int32", DType::kI32},
    {"int64", DType::kI64},        {"float16", DType::kF16},   {"float32", DType::kF32},   {"float64", DType::kF64},  {"complex32", DType::kNone},
    {"complex64", DType::kC64},    {"complex128", DType::kNone}, {"bool", DType::kBool},   {"bfloat16", DType::kBF16},
};

// A size: {"as_int": 3} or {"as_expr": {"expr_str": ..., "hint": ...}}.
Result<Dim> ParseSize(JsonElement element, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const JsonUnion u, AsUnion(element, where));
  if (u.tag == "as_int") {
    DT_ASSIGN_OR_RETURN(const int64_t v, AsInt(u.value, where));
    return Dim(v);
  }
  if (u.tag != "as_expr") return Unsupported(where, " is given by '", u.tag, "'");
  DT_ASSIGN_OR_RETURN(const JsonObject expr, AsObject(u.value, where));
  DT_ASSIGN_OR_RETURN(const std::string_view text, GetString(expr, "expr_str", where));
  auto d = ParseSympy(text);
  if (!d.ok()) return std::move(d).status().While(StrCat("reading ", where));
  return d;
}

Result<Arg> ParseSymbolic(JsonElement element, std::string_view where, ArgType named) {
  DT_ASSIGN_OR_RETURN(const JsonUnion u, AsUnion(element, where));
  Arg arg;
  if (u.tag == "as_name") {
    arg.type = named;
    DT_ASSIGN_OR_RETURN(arg.text, AsString(u.value, where));
  } else if (u.tag == "as_int") {
    arg.type = ArgType::kInt;
    DT_ASSIGN_OR_RETURN(arg.integer, AsInt(u.value, where));
  } else if (u.tag == "as_float") {
    arg.type = ArgType::kFloat;
    DT_ASSIGN_OR_RETURN(arg.number, AsDouble(u.value, where));
  } else if (u.tag == "as_bool") {
    arg.type = ArgType::kBool;
    DT_ASSIGN_OR_RETURN(arg.integer, AsBool(u.value, where));
  } else {
    return Corrupt(where, " has a symbolic value given by '", u.tag, "'");
  }
  return arg;
}

Result<Arg> ParseTensorArg(JsonElement element, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const JsonObject object, AsObject(element, where));
  Arg arg = Arg::Of(ArgType::kTensor);
  DT_ASSIGN_OR_RETURN(arg.text, GetString(object, "name", where));
  return arg;
}

// An optional tensor: {"as_tensor": {...}} or {"as_none": true}.
Result<Arg> ParseOptionalTensor(JsonElement element, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const JsonUnion u, AsUnion(element, where));
  if (u.tag == "as_none") return Arg{};
  return ParseTensorArg(u.value, where);
}

template <class Fn>
Result<Arg> ParseList(JsonElement element, std::string_view where, ArgType type, const Fn& item) {
  DT_ASSIGN_OR_RETURN(const JsonArray array, AsArray(element, where));
  Arg arg = Arg::Of(type);
  for (JsonElement e : array) {
    DT_ASSIGN_OR_RETURN(Arg a, item(e));
    arg.items.push_back(std::move(a));
  }
  return arg;
}

Result<Arg> ParseArg(JsonElement element, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const JsonUnion u, AsUnion(element, where));
  const JsonElement v = u.value;
  auto integer = [&](ArgType type) -> Result<Arg> {
    Arg arg = Arg::Of(type);
    DT_ASSIGN_OR_RETURN(arg.integer, AsInt(v, where));
    return arg;
  };
  auto an_int = [&](JsonElement e) -> Result<Arg> {
    Arg arg = Arg::Of(ArgType::kInt);
    DT_ASSIGN_OR_RETURN(arg.integer, AsInt(e, where));
    return arg;
  };
  auto a_float = [&](JsonElement e) -> Result<Arg> {
    Arg arg = Arg::Of(ArgType::kFloat);
    DT_ASSIGN_OR_RETURN(arg.number, AsDouble(e, where));
    return arg;
  };
  auto a_bool = [&](JsonElement e) -> Result<Arg> {
    Arg arg = Arg::Of(ArgType::kBool);
    DT_ASSIGN_OR_RETURN(arg.integer, AsBool(e, where));
    return arg;
  };
  if (u.tag == "as_none") return Arg{};
  if (u.tag == "as_tensor") return ParseTensorArg(v, where);
  if (u.tag == "as_optional_tensor") return ParseOptionalTensor(v, where);
  if (u.tag == "as_tensors") return ParseList(v, where, ArgType::kTensors, [&](JsonElement e) { return ParseTensorArg(e, where); });
  if (u.tag == "as_optional_tensors") return ParseList(v, where, ArgType::kTensors, [&](JsonElement e) { return ParseOptionalTensor(e, where); });
  if (u.tag == "as_int") return an_int(v);
  if (u.tag == "as_ints") return ParseList(v, where, ArgType::kInts, an_int);
  if (u.tag == "as_float") return a_float(v);
  if (u.tag == "as_floats") return ParseList(v, where, ArgType::kFloats, a_float);
  if (u.tag == "as_bool") return a_bool(v);
  if (u.tag == "as_bools") return ParseList(v, where, ArgType::kBools, a_bool);
  if (u.tag == "as_sym_int") return ParseSymbolic(v, where, ArgType::kSymInt);
  if (u.tag == "as_sym_ints") return ParseList(v, where, ArgType::kInts, [&](JsonElement e) { return ParseSymbolic(e, where, ArgType::kSymInt); });
  if (u.tag == "as_sym_bool" || u.tag == "as_sym_float") return ParseSymbolic(v, where, ArgType::kSymOther);
  if (u.tag == "as_scalar_type") return integer(ArgType::kDType);
  if (u.tag == "as_layout") return integer(ArgType::kLayout);
  if (u.tag == "as_memory_format") return integer(ArgType::kMemoryFormat);
  if (u.tag == "as_device") return Arg::Of(ArgType::kDevice);
  if (u.tag == "as_string") {
    Arg arg = Arg::Of(ArgType::kString);
    DT_ASSIGN_OR_RETURN(arg.text, AsString(v, where));
    return arg;
  }
  Arg other = Arg::Of(ArgType::kOther);
  other.text = u.tag;
  return other;
}

Result<FxNode> ParseNode(JsonElement element, size_t index) {
  const std::string where = StrCat("node ", index);
  DT_ASSIGN_OR_RETURN(const JsonObject object, AsObject(element, where));
  FxNode node;
  DT_ASSIGN_OR_RETURN(node.target, GetString(object, "target", where));
  if (node.target.starts_with(kOpsPrefix)) node.target.remove_prefix(kOpsPrefix.size());
  DT_ASSIGN_OR_RETURN(node.name, GetString(object, "name", where, ""));
  DT_ASSIGN_OR_RETURN(const JsonArray inputs, GetArray(object, "inputs", where));
  for (JsonElement e : inputs) {
    DT_ASSIGN_OR_RETURN(const JsonObject input, AsObject(e, where));
    NamedArg arg;
    DT_ASSIGN_OR_RETURN(arg.name, GetString(input, "name", where, ""));
    DT_ASSIGN_OR_RETURN(const JsonElement value, Get(input, "arg", where));
    DT_ASSIGN_OR_RETURN(arg.value, ParseArg(value, where));
    node.inputs.push_back(std::move(arg));
  }
  DT_ASSIGN_OR_RETURN(const JsonArray outputs, GetArray(object, "outputs", where));
  for (JsonElement e : outputs) {
    DT_ASSIGN_OR_RETURN(Arg arg, ParseArg(e, where));
    node.outputs.push_back(std::move(arg));
  }
  if (node.name.empty() && !node.outputs.empty()) node.name = node.outputs[0].text;
  if (Has(object, "metadata")) {
    DT_ASSIGN_OR_RETURN(const JsonObject metadata, GetObject(object, "metadata", where));
    DT_ASSIGN_OR_RETURN(node.stack_trace, GetString(metadata, "stack_trace", where, ""));
    DT_ASSIGN_OR_RETURN(node.module_stack, GetString(metadata, "nn_module_stack", where, ""));
  }
  return node;
}

Result<InputSpec> ParseInputSpec(JsonElement element, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const JsonUnion u, AsUnion(element, where));
  DT_ASSIGN_OR_RETURN(const JsonObject body, AsObject(u.value, where));
  InputSpec spec;
  spec.tag = u.tag;
  struct Row {
    std::string_view tag, name_key;
    InputSpec::Kind kind;
  };
  constexpr Row kRows[] = {{"parameter", "parameter_name", InputSpec::kParameter},
                           {"buffer", "buffer_name", InputSpec::kBuffer},
                           {"tensor_constant", "tensor_constant_name", InputSpec::kTensorConstant}};
  for (const Row& row : kRows) {
    if (u.tag != row.tag) continue;
    spec.kind = row.kind;
    DT_ASSIGN_OR_RETURN(spec.name, GetString(body, row.name_key, where));
    DT_ASSIGN_OR_RETURN(const JsonElement arg, Get(body, "arg", where));
    DT_ASSIGN_OR_RETURN(spec.arg, ParseTensorArg(arg, where));
    return spec;
  }
  if (u.tag == "user_input") {
    spec.kind = InputSpec::kUserInput;
    DT_ASSIGN_OR_RETURN(const JsonElement arg, Get(body, "arg", where));
    DT_ASSIGN_OR_RETURN(spec.arg, ParseArg(arg, where));
  } else if (u.tag == "constant_input") {
    spec.kind = InputSpec::kConstantInput;
    DT_ASSIGN_OR_RETURN(spec.name, GetString(body, "name", where, ""));
  }
  return spec;
}

Result<OutputSpec> ParseOutputSpec(JsonElement element, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const JsonUnion u, AsUnion(element, where));
  DT_ASSIGN_OR_RETURN(const JsonObject body, AsObject(u.value, where));
  OutputSpec spec;
  spec.tag = u.tag;
  struct Row {
    std::string_view tag, target_key;
    OutputSpec::Kind kind;
  };
  constexpr Row kRows[] = {{"buffer_mutation", "buffer_name", OutputSpec::kBufferMutation},
                           {"user_input_mutation", "user_input_name", OutputSpec::kUserInputMutation},
                           {"parameter_mutation", "parameter_name", OutputSpec::kParameterMutation}};
  for (const Row& row : kRows) {
    if (u.tag != row.tag) continue;
    spec.kind = row.kind;
    DT_ASSIGN_OR_RETURN(spec.target, GetString(body, row.target_key, where));
    DT_ASSIGN_OR_RETURN(const JsonElement arg, Get(body, "arg", where));
    DT_ASSIGN_OR_RETURN(spec.arg, ParseTensorArg(arg, where));
    return spec;
  }
  if (u.tag == "token") spec.kind = OutputSpec::kToken;
  if (u.tag == "user_output") {
    spec.kind = OutputSpec::kUserOutput;
    DT_ASSIGN_OR_RETURN(const JsonElement arg, Get(body, "arg", where));
    DT_ASSIGN_OR_RETURN(spec.arg, ParseArg(arg, where));
  }
  return spec;
}

Status ParseRanges(JsonObject root, std::string_view name, ExportedProgram* program) {
  if (!Has(root, "range_constraints")) return OkStatus();
  DT_ASSIGN_OR_RETURN(const JsonObject ranges, GetObject(root, "range_constraints", name));
  for (auto [key, value] : ranges) {
    const std::string where = StrCat("the range of '", key, "'");
    DT_ASSIGN_OR_RETURN(const JsonObject range, AsObject(value, where));
    DimRange r;
    // Infinite bounds are null, or numbers too large for an integer.
    int64_t v;
    if (JsonElement e; !range.at_key("min_val").get(e) && !e.get(v)) r.min = v;
    if (JsonElement e; !range.at_key("max_val").get(e) && !e.get(v)) r.max = v;
    program->ranges.emplace_back(key, r);
  }
  return OkStatus();
}

Status ParseValues(JsonObject graph, std::string_view key, std::unordered_map<std::string_view, JsonElement>* values) {
  if (!Has(graph, key)) return OkStatus();
  DT_ASSIGN_OR_RETURN(const JsonObject object, GetObject(graph, key, "the graph"));
  values->reserve(object.size());
  for (auto [name, value] : object) values->emplace(name, value);
  return OkStatus();
}

Status CheckVersion(JsonObject root, std::string_view name, const ExportedProgram& program) {
  DT_ASSIGN_OR_RETURN(const JsonObject version, GetObject(root, "schema_version", name));
  DT_ASSIGN_OR_RETURN(const int64_t major, GetInt(version, "major", "schema_version"));
  if (major == kSchemaMajor) return OkStatus();
  return Unsupported(name, " has schema version ", major, " (torch ", program.torch_version.empty() ? "of unknown version" : program.torch_version,
                     "), and this reads version ", kSchemaMajor, "; save the model again with torch 2.10 or newer");
}

}  // namespace

DType DTypeFromFile(int64_t number) {
  if (number >= 0 && number < static_cast<int64_t>(std::size(kDTypes))) return kDTypes[number].dtype;
  return number == 28 ? DType::kU16 : number == 34 ? DType::kU32 : DType::kNone;
}
std::string_view DTypeNameInFile(int64_t number) {
  if (number >= 0 && number < static_cast<int64_t>(std::size(kDTypes))) return kDTypes[number].name;
  return number == 28 ? "uint16" : number == 34 ? "uint32" : number == 35 ? "uint64" : number >= 29 && number <= 33 ? "float8" : "unknown";
}

Result<TensorMeta> ParseTensorMeta(JsonElement element, std::string_view where, bool with_strides) {
  DT_ASSIGN_OR_RETURN(const JsonObject object, AsObject(element, where));
  TensorMeta meta;
  DT_ASSIGN_OR_RETURN(meta.dtype_number, GetInt(object, "dtype", where));
  meta.dtype = DTypeFromFile(meta.dtype_number);
  for (auto [key, list] : {std::pair("sizes", &meta.sizes), std::pair("strides", &meta.strides)}) {
    if (list == &meta.strides && !with_strides) return meta;
    DT_ASSIGN_OR_RETURN(const JsonArray array, GetArray(object, key, where));
    for (JsonElement e : array) {
      DT_ASSIGN_OR_RETURN(const Dim d, ParseSize(e, StrCat(key, " of ", where)));
      list->push_back(d);
    }
  }
  if (Has(object, "storage_offset")) {
    DT_ASSIGN_OR_RETURN(const JsonElement offset, Get(object, "storage_offset", where));
    DT_ASSIGN_OR_RETURN(meta.offset, ParseSize(offset, StrCat("storage_offset of ", where)));
  }
  return meta;
}

namespace {
Result<TensorMeta> RecordedType(const ExportedProgram& program, std::string_view name, bool with_strides) {
  auto it = program.tensors.find(name);
  if (it == program.tensors.end()) return NotFound("the graph records no type of tensor '", name, "'");
  return ParseTensorMeta(it->second, StrCat("tensor '", name, "'"), with_strides);
}
}  // namespace

Result<TensorMeta> ExportedProgram::Tensor(std::string_view name) const { return RecordedType(*this, name, false); }
Result<TensorMeta> ExportedProgram::TensorWithStrides(std::string_view name) const { return RecordedType(*this, name, true); }

Result<Dim> ExportedProgram::SymInt(std::string_view name) const {
  auto it = sym_ints.find(name);
  if (it == sym_ints.end()) return Corrupt("the graph has no symbolic integer '", name, "'");
  return ParseSize(it->second, StrCat("symbolic integer '", name, "'"));
}

Result<std::unique_ptr<ExportedProgram>> ParseExportedProgram(std::span<const std::byte> text, std::string_view name) {
  auto program = std::make_unique<ExportedProgram>();
  DT_RETURN_IF_ERROR(ParseJson(text, name, &program->document));
  DT_ASSIGN_OR_RETURN(const JsonObject root, AsObject(program->document.root, name));
  DT_ASSIGN_OR_RETURN(program->torch_version, GetString(root, "torch_version", name, ""));
  DT_RETURN_IF_ERROR(CheckVersion(root, name, *program));
  DT_ASSIGN_OR_RETURN(const JsonObject module, GetObject(root, "graph_module", name));
  DT_ASSIGN_OR_RETURN(const JsonObject graph, GetObject(module, "graph", "graph_module"));
  DT_ASSIGN_OR_RETURN(const JsonObject signature, GetObject(module, "signature", "graph_module"));
  DT_ASSIGN_OR_RETURN(const JsonArray inputs, GetArray(signature, "input_specs", "the signature"));
  for (JsonElement e : inputs) {
    DT_ASSIGN_OR_RETURN(InputSpec spec, ParseInputSpec(e, StrCat("input ", program->inputs.size(), " of the signature")));
    program->inputs.push_back(std::move(spec));
  }
  DT_ASSIGN_OR_RETURN(const JsonArray outputs, GetArray(signature, "output_specs", "the signature"));
  for (JsonElement e : outputs) {
    DT_ASSIGN_OR_RETURN(OutputSpec spec, ParseOutputSpec(e, StrCat("output ", program->outputs.size(), " of the signature")));
    program->outputs.push_back(std::move(spec));
  }
  DT_ASSIGN_OR_RETURN(const JsonArray nodes, GetArray(graph, "nodes", "the graph"));
  program->nodes.reserve(nodes.size());
  for (JsonElement e : nodes) {
    DT_ASSIGN_OR_RETURN(FxNode node, ParseNode(e, program->nodes.size()));
    program->nodes.push_back(std::move(node));
  }
  DT_RETURN_IF_ERROR(ParseValues(graph, "tensor_values", &program->tensors));
  DT_RETURN_IF_ERROR(ParseValues(graph, "sym_int_values", &program->sym_ints));
  DT_RETURN_IF_ERROR(ParseRanges(root, name, program.get()));
  return program;
}

}  // namespace dovetail::pt2
