#include <algorithm>
#include <map>

#include "format/meta.h"
#include "format/scalar_type.h"
#include "runtime/operators.h"
#include "runtime/program_data.h"

namespace dovetail {
namespace {

TensorInfo DescribeArgument(const pte::ExecutionPlan& plan, int32_t index, std::string name) {
  TensorInfo info;
  info.name = std::move(name);
  const pte::EValue& value = *plan.values()->Get(static_cast<uint32_t>(index));
  switch (value.val_type()) {
    case pte::KernelTypes::Int: info.type.dtype = DType::kI64; break;
    case pte::KernelTypes::Double: info.type.dtype = DType::kF64; break;
    case pte::KernelTypes::Bool: info.type.dtype = DType::kBool; break;
    case pte::KernelTypes::Tensor: {
      const pte::Tensor& t = *value.val_as_Tensor();
      for (int32_t size : TensorSizes(t)) info.max_sizes.push_back(size);
      info.type = TensorType(FromScalarType(t.scalar_type()), Shape(info.max_sizes));
      info.dynamic = t.shape_dynamism() != pte::TensorShapeDynamism::STATIC;
      break;
    }
    default: break;
  }
  return info;
}

struct Place {
  uint32_t memory_id;
  uint64_t offset;
  friend bool operator==(const Place&, const Place&) = default;
};
Place PlaceOf(const pte::Tensor& t) { return {t.allocation_info()->memory_id(), AllocationOffset(*t.allocation_info())}; }

// A state is planned memory with an initial value or with a name.
bool IsState(const pte::EValue& value) {
  const pte::Tensor* t = value.val_as_Tensor();
  if (!t || !t->allocation_info()) return false;
  const pte::ExtraTensorInfo* extra = t->extra_tensor_info();
  return t->data_buffer_idx() != 0 || (extra && extra->fully_qualified_name() && extra->fully_qualified_name()->size() > 0);
}

class StateCollector {
 public:
  explicit StateCollector(ProgramData* data) : data_(data) {}

  Status Method(size_t m) {
    MethodData& method = data_->methods[m];
    std::map<uint32_t, Place> placed;  // states of this method
    const auto& values = *method.plan->values();
    method.state_of_value.assign(values.size(), -1);
    for (uint32_t v = 0; v < values.size(); ++v) {
      if (!IsState(*values.Get(v))) continue;
      const pte::Tensor& t = *values.Get(v)->val_as_Tensor();
      StateInfo info;
      const auto* extra = t.extra_tensor_info();
      if (extra && extra->fully_qualified_name()) info.name = extra->fully_qualified_name()->str();
      if (info.name.empty()) info.name = StrCat(data_->infos[m].name, ".value_", v);
      info.dtype = FromScalarType(t.scalar_type());
      for (int32_t size : TensorSizes(t)) info.sizes.push_back(size);
      info.bytes = TensorBytes(t);
      const std::span<const std::byte> initial = data_->view.InitialData(t);
      info.has_initial_value = t.data_buffer_idx() != 0;
      DT_ASSIGN_OR_RETURN(const uint32_t state, Add(std::move(info), initial, m));
      auto [it, added] = placed.emplace(state, PlaceOf(t));
      if (added) data_->infos[m].states.push_back(state);
      else if (it->second != PlaceOf(t))
        return Corrupt("'", data_->name, "': method '", data_->infos[m].name, "' has the state '", data_->states[state].name, "' at two places");
      method.state_of_value[v] = static_cast<int32_t>(state);
    }
    return OkStatus();
  }

 private:
  Result<uint32_t> Add(StateInfo info, std::span<const std::byte> initial, size_t m) {
    auto [it, added] = by_name_.emplace(info.name, static_cast<uint32_t>(data_->states.size()));
    if (added) {
      data_->states.push_back(std::move(info));
      data_->initial.push_back(initial);
      return it->second;
    }
    StateInfo& known = data_->states[it->second];
    if (known.dtype != info.dtype || known.sizes != info.sizes)
      return Corrupt("'", data_->name, "': the state '", info.name, "' of method '", data_->infos[m].name, "' is ", Text(info),
                     ", but another method has it as ", Text(known), "; methods share states by name");
    if (!known.has_initial_value && info.has_initial_value) {
      known.has_initial_value = true;
      data_->initial[it->second] = initial;
    }
    return it->second;
  }
  static std::string Text(const StateInfo& s) { return TensorType(s.dtype, Shape(s.sizes)).ToString(); }

  ProgramData* data_;
  std::map<std::string, uint32_t, std::less<>> by_name_;
};

void DescribeCalls(const ProgramData& data, const pte::ExecutionPlan& plan, MethodInfo* info) {
  if (plan.operators())
    for (const pte::Operator* op : *plan.operators()) {
      const std::string name = OperatorName(*op);
      info->operators.push_back({name, 0, IsSupportedOperator(name)});
    }
  if (plan.delegates())
    for (const pte::BackendDelegate* d : *plan.delegates()) info->delegates.push_back({d->id()->str(), data.view.DelegateData(*d).size(), 0});
  ForEachInstruction(plan, [&](size_t, const pte::Instruction& instruction, size_t) {
    ++info->instructions;
    if (const auto* call = instruction.instr_args_as_KernelCall()) ++info->operators[static_cast<size_t>(call->op_index())].calls;
    if (const auto* call = instruction.instr_args_as_DelegateCall()) ++info->delegates[static_cast<size_t>(call->delegate_index())].calls;
  });
}

}  // namespace

std::string OperatorName(const pte::Operator& op) {
  std::string name = op.name()->str();
  if (op.overload()->size() > 0) name += "." + op.overload()->str();
  return name;
}

namespace {

// Takes what dovetail.meta knows of an argument; a shape that does not fit the tensor is refused.
Status DescribeFromMeta(const ProgramData& data, const std::string& method, const std::vector<MetaArgument>& meta, std::vector<TensorInfo>* infos) {
  if (meta.size() != infos->size())
    return Corrupt("'", data.name, "': ", kMetaKey, " has ", meta.size(), " inputs or outputs of method '", method, "', the method has ", infos->size());
  for (size_t i = 0; i < meta.size(); ++i) {
    TensorInfo& info = (*infos)[i];
    info.name = meta[i].name;
    if (info.max_sizes.size() != meta[i].shape.rank())
      return Corrupt("'", data.name, "': ", kMetaKey, " gives '", info.name, "' another rank than the program");
    for (size_t d = 0; d < meta[i].shape.rank(); ++d) {
      const Dim dim = meta[i].shape[d];
      if (dim.is_constant() && dim.value() > info.max_sizes[d])
        return Corrupt("'", data.name, "': ", kMetaKey, " gives '", info.name, "' another size than the program");
    }
    info.type.shape = meta[i].shape;
    info.symbolic = true;
  }
  return OkStatus();
}

Status ApplyMeta(ProgramData* data) {
  const auto bytes = data->view.FindNamedData(kMetaKey);
  if (!bytes) return OkStatus();
  DT_RETURN_IF_ERROR(data->Check(*bytes));
  DT_ASSIGN_OR_RETURN(MetaProgram meta, ReadMeta(*bytes, data->name));
  data->symbols = std::move(meta.symbols);
  data->quantization = std::move(meta.quantization);
  for (size_t m = 0; m < data->infos.size(); ++m) {
    for (MetaMethod& known : meta.methods) {
      if (known.name != data->infos[m].name) continue;
      DT_RETURN_IF_ERROR(DescribeFromMeta(*data, known.name, known.inputs, &data->infos[m].inputs));
      DT_RETURN_IF_ERROR(DescribeFromMeta(*data, known.name, known.outputs, &data->infos[m].outputs));
      data->methods[m].sources = std::move(known.instruction_sources);
    }
  }
  return OkStatus();
}

}  // namespace

Status DescribeProgram(ProgramData* data) {
  StateCollector states(data);
  for (const pte::ExecutionPlan* plan : *data->view.program().execution_plan()) {
    MethodInfo info;
    info.name = plan->name()->str();
    for (uint32_t i = 0; i < plan->inputs()->size(); ++i) info.inputs.push_back(DescribeArgument(*plan, plan->inputs()->Get(i), StrCat("input_", i)));
    for (uint32_t i = 0; i < plan->outputs()->size(); ++i) info.outputs.push_back(DescribeArgument(*plan, plan->outputs()->Get(i), StrCat("output_", i)));
    if (plan->non_const_buffer_sizes())
      for (uint32_t i = 1; i < plan->non_const_buffer_sizes()->size(); ++i) info.planned_bytes += static_cast<size_t>(plan->non_const_buffer_sizes()->Get(i));
    DescribeCalls(*data, *plan, &info);
    data->infos.push_back(std::move(info));
    data->methods.push_back({plan, {}, {}});
    DT_RETURN_IF_ERROR(states.Method(data->methods.size() - 1));
  }
  return ApplyMeta(data);
}

Status CheckSupport(const ProgramData& data, std::span<const DelegateEntry> delegates) {
  std::map<std::string, std::string> missing;  // what -> methods
  auto add = [&](std::string what, const std::string& method) {
    std::string& methods = missing[std::move(what)];
    if (methods.find("'" + method + "'") == std::string::npos) methods += (methods.empty() ? "'" : ", '") + method + "'";
  };
  for (const MethodInfo& m : data.infos) {
    for (const OperatorInfo& op : m.operators)
      if (op.calls > 0 && !op.supported) add("operator " + op.name, m.name);
    for (const DelegateInfo& d : m.delegates) {
      const bool known = std::any_of(delegates.begin(), delegates.end(), [&](const DelegateEntry& e) { return e.id == d.id; });
      if (d.calls > 0 && !known) add("delegate " + d.id, m.name);
    }
  }
  if (missing.empty()) return OkStatus();
  std::string list;
  for (const auto& [what, methods] : missing) list += StrCat("\n  ", what, " (method ", methods, ")");
  return Unsupported("'", data.name, "' needs ", missing.size(), " operator", missing.size() == 1 ? "" : "s",
                     " or delegates that this runtime does not have:", list);
}

}  // namespace dovetail
