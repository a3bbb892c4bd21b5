#include "import/importer.h"

#include <algorithm>
#include <unordered_set>

#include "base/crc32.h"
#include "import/rules.h"
#include "import/source_location.h"

namespace dovetail::pt2 {
namespace {

constexpr size_t kMaxProblems = 100;  // reported one by one

std::vector<std::string_view> OutputNames(const FxNode& node) {
  std::vector<std::string_view> names;
  for (const Arg& out : node.outputs) {
    if (out.type == ArgType::kTensor) names.push_back(out.text);
    for (const Arg& item : out.items) names.push_back(item.text);
  }
  return names;
}

bool IsSymbolic(const Arg& a) {
  return a.type == ArgType::kSymInt || a.type == ArgType::kSymOther || a.type == ArgType::kInt || a.type == ArgType::kBool || a.type == ArgType::kFloat;
}

// What to do about an operator that cannot be imported.
std::string_view WayOut(std::string_view target) {
  if (target.starts_with("aten."))
    return "program.run_decompositions() before saving may replace it, else rewrite this line with operators that `dovetail ops` lists";
  if (target.starts_with("higher_order.")) return "a branch or loop must not depend on a tensor's contents: compute both sides and choose with torch.where";
  if (target.starts_with("quantized_decomposed.") || target.starts_with("torchao."))
    return "of models quantized in PyTorch, those of prepare_pt2e/convert_pt2e and of torchao's int8 and intx configurations can be imported; "
           "else export the model in float and let `dovetail compile --quantize` quantize it";
  return "rewrite this line with torch's own operators, those that `dovetail ops` lists";
}

}  // namespace

Status Importer::Run() {
  DT_RETURN_IF_ERROR(BindInputs());
  for (const FxNode& node : program_.nodes) ImportNode(node);
  DT_RETURN_IF_ERROR(TakeProblems());
  builder_.location = kNone;
  aliases_.SetWriter(nullptr);
  DT_RETURN_IF_ERROR(BindOutputs());
  return aliases_.Finish();
}

Status Importer::BindInputs() {
  Status problems;
  std::unordered_set<std::string_view> checked;  // storages
  for (size_t i = 0; i < program_.inputs.size(); ++i) {
    const InputSpec& spec = program_.inputs[i];
    if (spec.kind == InputSpec::kConstantInput) continue;
    if (spec.kind == InputSpec::kOther) {
      problems.Also(Unsupported("input ", i, " of the export is a '", spec.tag, "'; only tensors, numbers, strings and None can be inputs"));
      continue;
    }
    if (spec.kind == InputSpec::kUserInput) {
      problems.Also(BindUserInput(spec, i));
      continue;
    }
    DT_ASSIGN_OR_RETURN(const StoredTensor* stored, archive_.FindTensor(spec.name));
    if (checked.insert(stored->path).second && Crc32(stored->storage) != stored->crc32)
      return Corrupt("the data of '", spec.name, "' (member '", stored->path,
                     "') do not match their checksum: the file is damaged; copy or export it again, with torch.serialization.set_crc32_options(True)");
    auto t = aliases_.AddStored(spec.name, *stored);
    if (!t.ok()) {
      problems.Also(std::move(t).status());
      continue;
    }
    aliases_.SetName(*t, spec.arg.text, kNone);
    targets_.emplace(spec.name, *t);
    if (!context_.tensors.emplace(spec.arg.text, *t).second) return Corrupt("two inputs of the graph are named '", spec.arg.text, "'");
  }
  DT_RETURN_IF_ERROR(std::move(problems));
  return BindSymbols();
}

Status Importer::BindUserInput(const InputSpec& spec, size_t index) {
  if (spec.arg.type == ArgType::kSymInt)
    return Unsupported("input ", index, " of the export ('", spec.arg.text, "') is an integer that may vary; pass it as a tensor, or fix it in the export");
  if (spec.arg.type == ArgType::kOther || spec.arg.type == ArgType::kSymOther) return Unsupported("input ", index, " of the export is a '", spec.arg.text, "'");
  if (spec.arg.type != ArgType::kTensor) return OkStatus();  // a constant of the program
  const std::string_view name = spec.arg.text;
  DT_ASSIGN_OR_RETURN(const TensorMeta meta, program_.Tensor(name));
  if (meta.dtype == DType::kNone || IsComplex(meta.dtype))
    return Unsupported("input '", name, "' has dtype ", DTypeNameInFile(meta.dtype_number), ", which is not supported");
  if (meta.sizes.size() > kMaxRank) return Unsupported("input '", name, "' has rank ", meta.sizes.size(), "; at most ", kMaxRank, " is supported");
  for (Dim d : meta.sizes) {
    if (d.is_constant() && d.value() < 0) return Corrupt("input '", name, "' has a negative size");
    if (!d.is_constant())
      for (std::string& s : d.symbols()) context_.input_symbols.insert(std::move(s));
  }
  const TensorId t = aliases_.AddInput(graph_.AddInput(std::string(name), TensorType(meta.dtype, Shape(meta.sizes))));
  targets_.emplace(name, t);
  if (!context_.tensors.emplace(name, t).second) return Corrupt("two inputs of the graph are named '", name, "'");
  return OkStatus();
}

Status Importer::BindSymbols() {
  for (const std::string& s : context_.input_symbols) module_.symbols.emplace(s, DimRange());
  for (const auto& [expression, range] : program_.ranges) {
    auto d = Dim::Parse(expression);
    if (!d.ok() || d->is_constant()) continue;  // a relation beyond sums and products restricts nothing here
    const auto affine = AsAffine(*d);
    auto it = affine ? module_.symbols.find(affine->symbol) : module_.symbols.end();
    if (it == module_.symbols.end()) continue;
    const int64_t min = Dim::FloorDiv(Dim(range.min) - Dim(affine->b) + Dim(affine->a - 1), affine->a).value();
    it->second.min = std::max(it->second.min, min);
    if (range.max != DimRange::kUnbounded) it->second.max = std::min(it->second.max, Dim::FloorDiv(Dim(range.max) - Dim(affine->b), affine->a).value());
  }
  for (const auto& [s, range] : module_.symbols)
    if (range.min > range.max) return Corrupt("symbol ", s, " has the empty range ", range.min, "..", range.max);
  return OkStatus();
}

uint32_t Importer::LocationOf(const FxNode& node) {
  Location location = ParseLocation(node.stack_trace, node.module_stack);
  if (location.source.empty() && location.module_path.empty()) return kNone;
  const auto [it, added] = locations_.emplace(StrCat(location.source, "\n", location.module_path), static_cast<uint32_t>(module_.locations.size()));
  if (added) module_.locations.push_back(std::move(location));
  return it->second;
}

void Importer::ImportNode(const FxNode& node) {
  builder_.location = LocationOf(node);
  aliases_.SetWriter(&node);
  const std::vector<std::string_view> names = OutputNames(node);
  Call call(context_, node);
  if (IsAssertion(node.target)) return;
  if (names.empty()) {
    if (node.target.starts_with("aten.item.") || node.target.starts_with("aten._local_scalar_dense.")) return ImportItem(node, call);
    // Arithmetic on sizes: the file records what every symbolic value stands for.
    if (!node.outputs.empty() && std::all_of(node.outputs.begin(), node.outputs.end(), IsSymbolic)) return;
  }
  if (!ApplyRule(node.target, call)) {
    Report(Unsupported("operator ", node.target, " is not supported; ", WayOut(node.target)), node);
  } else if (call.poisoned()) {
    // What it depends on was reported.
  } else if (!call.ok()) {
    Report(call.TakeStatus(), node);
  } else if (Status s = BindResults(node, call); !s.ok()) {
    Report(std::move(s), node);
  }
  for (std::string_view name : names) context_.tensors.emplace(name, kNone);
}

// The element may be a position; see Call::SymIntOrItem. As a size it is refused where it is used.
void Importer::ImportItem(const FxNode& node, Call& call) {
  if (node.outputs.size() != 1) return;
  if (node.outputs[0].type == ArgType::kSymOther) {
    const ValueId v = call.Reshape(call.Tensor("self"), {});
    if (call.ok()) context_.numbers.insert_or_assign(std::string(node.outputs[0].text), v);
    return;  // where it cannot be used as a number, its use is refused
  }
  if (node.outputs[0].type != ArgType::kSymInt) return;
  auto d = program_.SymInt(node.outputs[0].text);
  if (!d.ok()) return Report(std::move(d).status(), node);
  if (d->symbol().empty() || context_.input_symbols.contains(d->symbol())) return;
  const ValueId v = call.Convert(call.Reshape(call.Tensor("self"), {}), DType::kI64);
  if (call.ok()) context_.items.insert_or_assign(std::string(d->symbol()), v);
  else if (!call.poisoned()) Report(call.TakeStatus(), node);
}

Status Importer::BindResults(const FxNode& node, const Call& call) {
  const std::vector<std::string_view> names = OutputNames(node);
  const std::vector<TensorId>& results = call.results();
  for (size_t i = 0; i < names.size() && i < results.size(); ++i) {
    DT_RETURN_IF_ERROR(CheckType(names[i], results[i]));
    if (!context_.tensors.emplace(names[i], results[i]).second) return Corrupt("two values of the graph are named '", names[i], "'");
    aliases_.SetName(results[i], names[i], builder_.location);
  }
  // Results beyond those that a rule gives are training's; a use of one finds no tensor.
  if (results.empty() && !names.empty()) return Internal("the import rule gave no result");
  return OkStatus();
}

// The types that inference finds must be those that the export recorded.
Status Importer::CheckType(std::string_view name, TensorId t) const {
  auto meta = program_.Tensor(name);
  if (meta.status().code() == Code::kNotFound) return OkStatus();
  if (!meta.ok()) return std::move(meta).status();
  const TensorType& type = aliases_.type(t);
  std::vector<Dim> sizes = meta->sizes;
  DType dtype = meta->dtype;
  if (aliases_.is_complex(t) && IsComplex(dtype)) {
    dtype = DType::kF32;
    sizes.push_back(2);
  }
  bool same = dtype == type.dtype && sizes.size() == type.rank();
  for (size_t i = 0; same && i < sizes.size(); ++i) same = sizes[i] == type.shape[i] || !sizes[i].is_constant() || !type.shape[i].is_constant();
  if (same) return OkStatus();
  std::string recorded;
  for (Dim d : sizes) recorded += StrCat(recorded.empty() ? "" : ",", d.ToString());
  return Internal("the import gives ", type.ToString(), " for '", name, "' where the export recorded ",
                  DTypeNameInFile(meta->dtype_number), "[", recorded, "]");
}

Result<TensorId> Importer::FindTensor(const Arg& arg, std::string_view what) const {
  auto it = context_.tensors.find(arg.text);
  if (arg.type != ArgType::kTensor || it == context_.tensors.end() || it->second == kNone)
    return Corrupt(what, " is '", arg.text, "', which is no tensor of the graph");
  if (aliases_.is_complex(it->second)) return Unsupported(what, " is a complex tensor; return torch.view_as_real of it");
  return it->second;
}

Status Importer::BindOutputs() {
  // All values are read before any mutation of the signature is applied: such a graph is functional already.
  std::vector<std::pair<const OutputSpec*, ValueId>> mutations;
  const FxNode returning;
  Call call(context_, returning);
  size_t leaf = 0;
  for (const OutputSpec& spec : program_.outputs) {
    if (spec.kind == OutputSpec::kToken) continue;
    if (spec.kind == OutputSpec::kOther) return Unsupported("the export has an output of kind '", spec.tag, "'; export the model for inference");
    const bool user = spec.kind == OutputSpec::kUserOutput;
    const std::string what = user ? StrCat("output ", leaf) : StrCat("the new value of '", spec.target, "'");
    const size_t index = leaf;
    leaf += user;
    if (user && spec.arg.type == ArgType::kSymInt) {
      DT_ASSIGN_OR_RETURN(const Dim d, program_.SymInt(spec.arg.text));
      const ValueId v = call.ScalarTensor(d, DType::kI64);
      if (!call.ok()) return call.TakeStatus().While(StrCat("returning ", what));
      graph_.outputs.push_back(v);
      graph_.output_names.push_back(StrCat("output_", index));
      continue;
    }
    if (user && spec.arg.type == ArgType::kSymOther) return Unsupported(what, " is the symbolic number '", spec.arg.text, "'");
    if (user && spec.arg.type != ArgType::kTensor) continue;
    DT_ASSIGN_OR_RETURN(const TensorId t, FindTensor(spec.arg, what));
    DT_ASSIGN_OR_RETURN(const ValueId v, aliases_.Read(t));
    if (user) {
      graph_.outputs.push_back(v);
      graph_.output_names.push_back(StrCat("output_", index));
    } else {
      mutations.emplace_back(&spec, v);
    }
  }
  for (const auto& [spec, value] : mutations) DT_RETURN_IF_ERROR(WriteMutation(*spec, value));
  for (TensorId t : aliases_.WrittenInputs()) {
    DT_ASSIGN_OR_RETURN(const ValueId v, aliases_.Read(t));
    graph_.outputs.push_back(v);
    graph_.output_names.push_back(StrCat("mutated.", aliases_.InputName(t)));
  }
  if (graph_.outputs.empty() && program_.outputs.empty()) return Corrupt("the export has no outputs");
  return OkStatus();
}

Status Importer::WriteMutation(const OutputSpec& spec, ValueId value) {
  auto it = targets_.find(spec.target);
  if (it == targets_.end()) return Corrupt("the export writes '", spec.target, "', which is none of its inputs");
  const TensorType type = aliases_.type(it->second);
  if (graph_.type(value).dtype != type.dtype)
    return Unsupported("the export writes ", graph_.type(value).ToString(), " to '", spec.target, "' of type ", type.ToString(),
                       "; run_decompositions() loses the conversion of a copy_, so save the program before it, or convert in the model");
  const FxNode writing;
  Call call(context_, writing);
  value = call.Expand(value, type.shape);  // run_decompositions() makes the source of a copy_ the new value, whatever its shape
  if (!call.ok()) return call.TakeStatus().While(StrCat("writing '", spec.target, "'"));
  return aliases_.Write(it->second, value);
}

void Importer::Report(Status status, const FxNode& node) {
  const Location* location = builder_.location == kNone ? nullptr : &module_.locations[builder_.location];
  std::string source = location ? location->source : "";
  std::string key = StrCat(node.target, "\n", status.message(), "\n", source);
  if (auto it = problem_index_.find(key); it != problem_index_.end()) {
    ++problems_[it->second].count;
    return;
  }
  problem_index_.emplace(key, problems_.size());
  if (location && !location->module_path.empty()) source += StrCat(source.empty() ? "" : " ", "(module ", location->module_path, ")");
  problems_.push_back({std::move(status).At(StrCat("%", node.name, " = ", node.target), std::move(source)), std::move(key), 1});
}

Status Importer::TakeProblems() {
  Status all;
  size_t listed = 0, left = 0;
  for (Problem& p : problems_) {
    if (listed++ >= kMaxProblems) {
      left += p.count;
      continue;
    }
    all.Also(p.count == 1 ? std::move(p.status) : std::move(p.status).While(StrCat("importing this and ", p.count - 1, " more nodes like it")));
  }
  if (left > 0) all.Also(Unsupported("and ", left, " more nodes"));
  return all;
}

}  // namespace dovetail::pt2
