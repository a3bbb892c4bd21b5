// From the instructions of a .pte to steps. The .pte's arguments are the operator's schema in order, then its out tensors, then
// (ExecuTorch repeats what the operator returns) the results again.
#include <algorithm>

#include "format/scalar_type.h"
#include "runtime/method_impl.h"

namespace dovetail {
namespace {

class KernelBinder {
 public:
  KernelBinder(MethodImpl* m, std::span<const int32_t> args, KernelStep* step) : m_(*m), args_(args), step_(*step) {}

  Status Run() {
    const Schema& schema = *step_.op.schema;
    for (const SchemaArg& arg : schema.args) DT_RETURN_IF_ERROR(Argument(arg));
    const bool in_place = !schema.args.empty() && schema.args[0].written;
    if (in_place) {
      if (step_.operands.empty() || step_.operands[0] < 0) return Corrupt("the tensor to update is None");
      step_.outputs.push_back(static_cast<uint32_t>(step_.operands[0]));
    } else if (schema.list_result) {
      DT_ASSIGN_OR_RETURN(const uint32_t v, Next("out"));
      if (m_.table.values[v].kind != ValueKind::kTensorList) return WrongKind("out", "a list of tensors", v);
      DT_RETURN_IF_ERROR(TensorList(v, "out", false, [&](int32_t t) { step_.outputs.push_back(static_cast<uint32_t>(t)); }));
    } else {
      for (size_t r = 0; r < schema.results.size(); ++r) {
        DT_ASSIGN_OR_RETURN(const uint32_t v, Next("out"));
        if (m_.table.values[v].kind != ValueKind::kTensor) return WrongKind("out", "a tensor", v);
        step_.outputs.push_back(m_.table.values[v].tensor);
      }
    }
    DT_RETURN_IF_ERROR(Returned(in_place));
    if (out_dtype_ >= 0 && !step_.outputs.empty())
      step_.attrs[static_cast<size_t>(out_dtype_)] = Attr(m_.table.tensors[step_.outputs[0]].view.dtype);
    step_.in_views.resize(step_.operands.size());
    step_.out_views.resize(step_.outputs.size());
    return OkStatus();
  }

 private:
  Result<uint32_t> Next(std::string_view what) {
    if (at_ >= args_.size())
      return Corrupt("the call has ", args_.size(), " arguments, but '", what, "' of ", step_.op.def->schema, " is missing");
    return static_cast<uint32_t>(args_[at_++]);
  }
  Status WrongKind(std::string_view what, std::string_view wanted, uint32_t v) const {
    return Corrupt("argument '", what, "' must be ", wanted, ", not ", DescribeValue(m_.table, v));
  }

  template <class Fn>
  Status TensorList(uint32_t v, std::string_view what, bool optional, Fn add) const {
    auto one = [&](int64_t item) -> Status {
      if (item < 0 || m_.table.values[static_cast<size_t>(item)].kind == ValueKind::kNone) {
        if (!optional) return Corrupt("argument '", what, "' is a list with a None in it");
        add(-1);
      } else {
        add(static_cast<int32_t>(m_.table.values[static_cast<size_t>(item)].tensor));
      }
      return OkStatus();
    };
    const pte::EValue& source = *m_.table.values[v].source;
    const auto* items = source.val_as_TensorList() ? source.val_as_TensorList()->items() : source.val_as_OptionalTensorList()->items();
    for (int32_t item : *items) DT_RETURN_IF_ERROR(one(item));
    return OkStatus();
  }

  Status Argument(const SchemaArg& arg) {
    if (!IsTensorKind(arg.kind)) {
      const uint32_t attr = static_cast<uint32_t>(step_.attrs.size());
      step_.attrs.emplace_back();
      if (arg.kind == ArgKind::kDType && arg.name == "out_dtype") {  // in a .pte, the out tensor says it
        out_dtype_ = static_cast<int>(attr);
        return OkStatus();
      }
      DT_ASSIGN_OR_RETURN(const uint32_t v, Next(arg.name));
      return Attribute(arg, v, attr);
    }
    DT_ASSIGN_OR_RETURN(const uint32_t v, Next(arg.name));
    const Value& value = m_.table.values[v];
    if (IsListOfTensors(arg.kind)) {
      if (value.kind != ValueKind::kTensorList) return WrongKind(arg.name, "a list of tensors", v);
      return TensorList(v, arg.name, arg.kind == ArgKind::kOptionalTensorList, [&](int32_t t) { step_.operands.push_back(t); });
    }
    if (value.kind == ValueKind::kTensor) step_.operands.push_back(static_cast<int32_t>(value.tensor));
    else if (value.kind == ValueKind::kNone && arg.kind == ArgKind::kOptionalTensor) step_.operands.push_back(-1);
    else return WrongKind(arg.name, "a tensor", v);
    return OkStatus();
  }

  Status Attribute(const SchemaArg& arg, uint32_t v, uint32_t index) {
    const Value& value = m_.table.values[v];
    Attr& attr = step_.attrs[index];
    if (value.kind == ValueKind::kNone) {
      if (!arg.optional && arg.kind != ArgKind::kIgnored) return WrongKind(arg.name, "given", v);
      return OkStatus();
    }
    switch (arg.kind) {
      case ArgKind::kIgnored: return OkStatus();
      case ArgKind::kBool:
      case ArgKind::kInt:
      case ArgKind::kFloat:
      case ArgKind::kScalar:
        if (!value.is_number()) return WrongKind(arg.name, "a number", v);
        if (arg.kind == ArgKind::kBool && value.kind != ValueKind::kBool && !value.computed) return WrongKind(arg.name, "a bool", v);
        if (arg.kind == ArgKind::kInt && value.kind != ValueKind::kInt && !value.computed) return WrongKind(arg.name, "an int", v);
        attr = arg.kind == ArgKind::kFloat ? Attr(value.AsDouble()) : value.AsAttr();
        if (value.computed) step_.computed.push_back({index, -1, v});
        return OkStatus();
      case ArgKind::kString:
        if (value.kind != ValueKind::kString) return WrongKind(arg.name, "a string", v);
        attr = Attr(value.source->val_as_String()->string_val()->str());
        return OkStatus();
      case ArgKind::kIntList: {
        if (value.kind != ValueKind::kIntList) return WrongKind(arg.name, "a list of ints", v);
        std::vector<Dim> dims;
        for (int64_t item : *value.source->val_as_IntList()->items()) {
          const Value& number = m_.table.values[static_cast<size_t>(item)];
          if (number.computed) step_.computed.push_back({index, static_cast<int32_t>(dims.size()), static_cast<uint32_t>(item)});
          dims.push_back(Dim(number.AsInt()));
        }
        attr = Attr(std::move(dims));
        return OkStatus();
      }
      case ArgKind::kFloatList: {
        if (value.kind != ValueKind::kDoubleList) return WrongKind(arg.name, "a list of floats", v);
        const auto* items = value.source->val_as_DoubleList()->items();
        attr = Attr(std::vector<double>(items->begin(), items->end()));
        return OkStatus();
      }
      case ArgKind::kBoolList: {
        if (value.kind != ValueKind::kBoolList) return WrongKind(arg.name, "a list of bools", v);
        std::vector<bool> flags;
        for (auto item : *value.source->val_as_BoolList()->items()) flags.push_back(item != 0);
        attr = Attr(std::move(flags));
        return OkStatus();
      }
      case ArgKind::kDType: {
        const DType t =
            value.kind == ValueKind::kInt && value.i >= INT8_MIN && value.i <= INT8_MAX ? FromScalarType(static_cast<pte::ScalarType>(value.i)) : DType::kNone;
        if (t == DType::kNone) return WrongKind(arg.name, "a dtype that Dovetail has", v);
        attr = Attr(t);
        return OkStatus();
      }
      default: return WrongKind(arg.name, "a tensor", v);
    }
  }

  // The arguments after the out tensors.
  Status Returned(bool in_place) {
    while (at_ < args_.size()) {
      const uint32_t v = static_cast<uint32_t>(args_[at_++]);
      const Value& value = m_.table.values[v];
      if (value.kind == ValueKind::kTensorList) continue;
      if (value.kind != ValueKind::kTensor) return Corrupt("the call has an argument too many: ", DescribeValue(m_.table, v));
      if (std::find(step_.outputs.begin(), step_.outputs.end(), value.tensor) != step_.outputs.end()) continue;
      if (!in_place || step_.result_view >= 0) return Corrupt("the call has an argument too many: ", DescribeValue(m_.table, v));
      step_.result_view = static_cast<int32_t>(value.tensor);
    }
    return OkStatus();
  }

  MethodImpl& m_;
  std::span<const int32_t> args_;
  KernelStep& step_;
  size_t at_ = 0;
  int out_dtype_ = -1;
};

Result<PrimStep> BindPrim(const MethodImpl& m, const PrimEntry& entry, std::span<const int32_t> args) {
  if (args.size() != entry.arguments + 1u) return Corrupt("the call has ", args.size(), " arguments instead of ", entry.arguments + 1);
  PrimStep step;
  step.prim = entry.prim;
  for (size_t i = 0; i < entry.arguments; ++i) step.arguments.push_back(static_cast<uint32_t>(args[i]));
  step.result = static_cast<uint32_t>(args[entry.arguments]);
  const bool takes_tensor = entry.prim == Prim::kSize || entry.prim == Prim::kNumel || entry.prim == Prim::kItem || entry.prim == Prim::kView;
  auto kind = [&](size_t v) { return m.table.values[v].kind; };
  for (size_t i = 0; i < step.arguments.size(); ++i) {
    const bool tensor = takes_tensor && i == 0, list = entry.prim == Prim::kView && i == 1;
    const bool right = tensor ? kind(step.arguments[i]) == ValueKind::kTensor
                       : list ? kind(step.arguments[i]) == ValueKind::kIntList
                              : m.table.values[step.arguments[i]].is_number();
    if (!right)
      return Corrupt("argument ", i, " must be ",
                     tensor ? "a tensor"
                     : list ? "a list of ints"
                            : "a number",
                     ", not ", DescribeValue(m.table, step.arguments[i]));
  }
  const bool right = entry.prim == Prim::kView ? kind(step.result) == ValueKind::kTensor : m.table.values[step.result].is_number();
  if (!right) return Corrupt("the result cannot be stored in ", DescribeValue(m.table, step.result));
  return step;
}

Result<MoveStep> BindMove(const MethodImpl& m, const pte::MoveCall& call) {
  MoveStep step{static_cast<uint32_t>(call.move_from()), static_cast<uint32_t>(call.move_to())};
  const Value& v = m.table.values[step.from];
  if (v.kind != ValueKind::kTensor && !v.is_number())
    return Unsupported("moves ", DescribeValue(m.table, step.from), "; only tensors and numbers can be moved");
  return step;
}

std::span<const int32_t> Args(const flatbuffers::Vector<int32_t>* v) { return {v->data(), v->size()}; }

// Marks numbers that change while running, so that attributes made of them follow.
void FindComputed(MethodImpl* m, const std::vector<OperatorEntry>& operators) {
  const pte::ExecutionPlan& plan = *m->data().plan;
  auto mark = [&](int32_t v) { m->table.values[static_cast<size_t>(v)].computed |= m->table.values[static_cast<size_t>(v)].is_number(); };
  for (int32_t v : *plan.inputs()) mark(v);
  ForEachInstruction(plan, [&](size_t, const pte::Instruction& instruction, size_t) {
    if (const auto* call = instruction.instr_args_as_KernelCall()) {
      if (std::holds_alternative<PrimEntry>(operators[static_cast<size_t>(call->op_index())]) && call->args()->size() > 0)
        mark(call->args()->Get(call->args()->size() - 1));
    } else if (const auto* move = instruction.instr_args_as_MoveCall()) {
      mark(move->move_to());
    }
  });
}

Result<Step> BindOne(MethodImpl* m, const std::vector<OperatorEntry>& operators, const pte::Instruction& instruction, size_t base, std::string* name) {
  const pte::ExecutionPlan& plan = *m->data().plan;
  switch (instruction.instr_args_type()) {
    case pte::InstructionArguments::KernelCall: {
      const auto& call = *instruction.instr_args_as_KernelCall();
      const size_t op = static_cast<size_t>(call.op_index());
      *name = m->info().operators[op].name;
      if (const auto* prim = std::get_if<PrimEntry>(&operators[op])) {
        DT_ASSIGN_OR_RETURN(PrimStep step, BindPrim(*m, *prim, Args(call.args())));
        return Step(std::move(step));
      }
      KernelStep step;
      step.op = *std::get_if<KernelEntry>(&operators[op]);
      DT_RETURN_IF_ERROR(KernelBinder(m, Args(call.args()), &step).Run());
      return Step(std::move(step));
    }
    case pte::InstructionArguments::DelegateCall: {
      const auto& call = *instruction.instr_args_as_DelegateCall();
      DelegateStep step;
      step.index = static_cast<uint32_t>(call.delegate_index());
      *name = plan.delegates()->Get(step.index)->id()->str();
      for (int32_t v : *call.args()) {
        if (m->table.values[static_cast<size_t>(v)].kind != ValueKind::kTensor)
          return Unsupported("passes ", DescribeValue(m->table, static_cast<size_t>(v)), " to a delegate; delegates take tensors only");
        step.arguments.push_back(m->table.values[static_cast<size_t>(v)].tensor);
      }
      return Step(std::move(step));
    }
    case pte::InstructionArguments::MoveCall: {
      *name = "move";
      DT_ASSIGN_OR_RETURN(const MoveStep step, BindMove(*m, *instruction.instr_args_as_MoveCall()));
      return Step(step);
    }
    case pte::InstructionArguments::JumpFalseCall: {
      const auto& jump = *instruction.instr_args_as_JumpFalseCall();
      *name = "jump";
      return Step(
          JumpStep{static_cast<uint32_t>(jump.cond_value_index()), static_cast<uint32_t>(base) + static_cast<uint32_t>(jump.destination_instruction())});
    }
    default: *name = "free"; return Step();
  }
}

}  // namespace

Status BindInstructions(MethodImpl* m) {
  const pte::ExecutionPlan& plan = *m->data().plan;
  std::vector<OperatorEntry> operators;
  for (const OperatorInfo& op : m->info().operators) operators.push_back(FindOperator(op.name));
  FindComputed(m, operators);
  Status status;
  ForEachInstruction(plan, [&](size_t number, const pte::Instruction& instruction, size_t base) {
    if (!status.ok()) return;
    m->step_names.emplace_back();
    Result<Step> step = BindOne(m, operators, instruction, base, &m->step_names.back());
    if (!step.ok()) {
      status = std::move(step).status().At(DescribeStep(*m, number), SourceOfStep(*m, number));
      return;
    }
    m->steps.push_back(std::move(step).value());
  });
  return status;
}

}  // namespace dovetail
