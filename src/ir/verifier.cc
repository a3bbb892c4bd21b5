#include "ir/verifier.h"

#include "ir/builder.h"

namespace dovetail {
namespace {

bool KindMatches(const SchemaArg& arg, const Attr& a) {
  if (a.is_none()) return arg.optional || arg.kind == ArgKind::kIgnored || (arg.has_default && arg.default_value.is_none());
  switch (arg.kind) {
    case ArgKind::kBool: return a.is<bool>();
    case ArgKind::kInt: return a.is<Dim>();
    case ArgKind::kFloat: return a.is<double>() || a.is<Dim>();
    case ArgKind::kScalar: return a.is<bool>() || a.is<Dim>() || a.is<double>();
    case ArgKind::kString: return a.is<std::string>();
    case ArgKind::kIntList: return a.is<std::vector<Dim>>();
    case ArgKind::kFloatList: return a.is<std::vector<double>>();
    case ArgKind::kBoolList: return a.is<std::vector<bool>>();
    case ArgKind::kDType: return a.is<DType>();
    default: return false;
  }
}

class GraphVerifier {
 public:
  GraphVerifier(const Module& module, const Graph& graph, bool nested) : module_(module), graph_(graph), nested_(nested) {}

  Status Run() {
    defined_.assign(graph_.num_values(), false);
    for (ValueId v : graph_.inputs) {
      if (v >= graph_.num_values()) return Internal("graph @", graph_.name, " has an input that does not exist");
      defined_[v] = true;
    }
    for (NodeId id : graph_.order) {
      if (id >= graph_.num_nodes()) return Internal("graph @", graph_.name, " orders a node that does not exist");
      const Node& n = graph_.node(id);
      if (Status s = Check(n); !s.ok())
        return std::move(s).At(DescribeNode(graph_, n), DescribeSource(module_, n)).While(StrCat("verifying graph @", graph_.name));
    }
    if (!graph_.output_names.empty() && graph_.output_names.size() != graph_.outputs.size())
      return Internal("graph @", graph_.name, " has ", graph_.outputs.size(), " outputs and ", graph_.output_names.size(), " names for them");
    for (ValueId v : graph_.outputs)
      if (v >= graph_.num_values() || !defined_[v]) return Internal("graph @", graph_.name, " returns a value that is not defined");
    return OkStatus();
  }

 private:
  Status Check(const Node& n) {
    if (n.op >= OpId::kCount) return Internal("unknown operator");
    const OpDef& op = GetOp(n.op);
    const Schema& schema = GetSchema(n.op);
    for (ValueId v : n.operands)
      if (v != kNone && (v >= graph_.num_values() || !defined_[v])) return Internal("operand is used before it is defined");
    const size_t fixed = static_cast<size_t>(schema.tensor_args);
    if (schema.list_arg < 0 ? n.operands.size() != fixed : n.operands.size() + 1 < fixed)
      return InvalidArgument("operator ", op.name, " takes ", fixed, " tensors, not ", n.operands.size());
    for (size_t p = 0; p < schema.args.size(); ++p) {
      const SchemaArg& arg = schema.args[p];
      if (!IsTensorKind(arg.kind)) continue;
      const auto range = schema.OperandsOf(p, n.operands.size());
      for (size_t i = range.first; i < range.first + range.count; ++i)
        if (n.operands[i] == kNone && arg.kind != ArgKind::kOptionalTensor && arg.kind != ArgKind::kOptionalTensorList)
          return InvalidArgument("operator ", op.name, " needs its operand '", arg.name, "'");
    }
    if (n.attrs.size() != static_cast<size_t>(schema.other_args)) return InvalidArgument("operator ", op.name, " takes ", schema.other_args, " attributes");
    for (const SchemaArg& arg : schema.args)
      if (!IsTensorKind(arg.kind) && !KindMatches(arg, n.attrs[static_cast<size_t>(arg.index)]))
        return InvalidArgument("attribute '", arg.name, "' of ", op.name, " cannot be ", n.attrs[static_cast<size_t>(arg.index)].ToString());
    for (ValueId v : n.results) {
      if (v >= graph_.num_values() || defined_[v]) return Internal("a result is defined twice");
      defined_[v] = true;
    }
    DT_RETURN_IF_ERROR(op.traits & kStructural ? CheckStructural(n) : CheckTypes(n));
    const bool in_place = n.op == OpId::kIndexPutInplace || n.op == OpId::kCopy;
    if (in_place && module_.form != Form::kPlanned) return Internal("an operator in place outside the planned form");
    return OkStatus();
  }

  Status CheckTypes(const Node& n) {
    if (!GetSchema(n.op).list_result && n.results.size() != GetSchema(n.op).results.size())
      return InvalidArgument("operator ", GetOp(n.op).name, " has ", GetSchema(n.op).results.size(), " results, not ", n.results.size());
    DT_ASSIGN_OR_RETURN(std::vector<TensorType> types, InferTypes(module_, graph_, n.op, n.operands, n.attrs, n.results.size()));
    for (size_t i = 0; i < types.size(); ++i)
      // A result may be declared as quantized wherever the operator computes in f32.
      if (types[i] != (ComputesOnIntegers(n.op) ? graph_.type(n.results[i]) : Dequantized(graph_.type(n.results[i]))))
        return InvalidArgument("result ", i, " has type ", graph_.type(n.results[i]).ToString(), " where the operands give ", types[i].ToString());
    return OkStatus();
  }

  Status CheckStructural(const Node& n) {
    if (n.op == OpId::kConst) {
      if (n.ref >= module_.constants.size()) return Internal("a constant that does not exist");
      if (n.results.size() != 1 || graph_.type(n.results[0]) != module_.constants[n.ref].type) return InvalidArgument("type differs from the constant's");
      return OkStatus();
    }
    if (n.op == OpId::kStateRead || n.op == OpId::kStateWrite) {
      if (nested_) return Internal("a state inside a region");
      if (n.ref >= module_.states.size()) return Internal("a state that does not exist");
      const TensorType& type = module_.states[n.ref].type;
      if (n.op == OpId::kStateRead && (n.results.size() != 1 || graph_.type(n.results[0]) != type)) return InvalidArgument("type differs from the state's");
      if (n.op == OpId::kStateWrite && (!n.results.empty() || graph_.type(n.operands[0]) != type))
        return InvalidArgument("writes ", graph_.type(n.operands[0]).ToString(), " to state '", module_.states[n.ref].name, "' of type ", type.ToString());
      return OkStatus();
    }
    if (module_.form < Form::kPartitioned) return Internal("a delegate before partitioning");
    if (!n.region || !n.region->body) return Internal("a delegate without a region");
    const Graph& body = *n.region->body;
    if (body.inputs.size() != n.operands.size() || body.outputs.size() != n.results.size() || n.region->aliases.size() != n.results.size())
      return InvalidArgument("a delegate's operands and results differ in number from its region's");
    // Around regions the quantization may have been spelled out, which leaves plain integers.
    const auto fits = [](const TensorType& inside, const TensorType& outside) {
      return inside == outside || (inside.per_tensor() && TensorType(inside.dtype, inside.shape) == outside);
    };
    for (size_t i = 0; i < n.operands.size(); ++i)
      if (n.operands[i] == kNone || !fits(body.type(body.inputs[i]), graph_.type(n.operands[i])))
        return InvalidArgument("operand ", i, " of a delegate differs in type from its region's input");
    for (size_t i = 0; i < n.results.size(); ++i) {
      if (!fits(body.type(body.outputs[i]), graph_.type(n.results[i])))
        return InvalidArgument("result ", i, " of a delegate differs in type from its region's output");
      const int alias = n.region->aliases[i];
      if (alias >= static_cast<int>(n.operands.size())) return InvalidArgument("result ", i, " aliases an operand that does not exist");
      if (alias >= 0 && graph_.type(n.operands[static_cast<size_t>(alias)]) != graph_.type(n.results[i]))
        return InvalidArgument("result ", i, " aliases an operand of another type");
    }
    return GraphVerifier(module_, body, true).Run();
  }

  const Module& module_;
  const Graph& graph_;
  const bool nested_;
  std::vector<bool> defined_;
};

}  // namespace

Status Verify(const Module& module) {
  std::set<std::string_view> names;
  for (const auto& g : module.graphs)
    if (!names.insert(g->name).second) return InvalidArgument("two graphs are named '", g->name, "'");
  names.clear();
  for (const Constant& c : module.constants)
    if (!names.insert(c.name).second) return InvalidArgument("two constants are named '", c.name, "'");
  names.clear();
  for (const State& s : module.states) {
    if (!names.insert(s.name).second) return InvalidArgument("two states are named '", s.name, "'");
    if (!s.type.shape.is_constant()) return InvalidArgument("state '", s.name, "' has a dynamic shape");
    if (s.initial.type != s.type) return Internal("state '", s.name, "' starts with another type");
  }
  for (const auto& g : module.graphs) DT_RETURN_IF_ERROR(GraphVerifier(module, *g, false).Run());
  return OkStatus();
}

StateSets CollectStates(const Module& module) {
  StateSets sets;
  for (const auto& g : module.graphs) {
    for (NodeId id : g->order) {
      const Node& n = g->node(id);
      if (n.op == OpId::kStateRead) sets.read.insert(StrCat(g->name, ".", module.states[n.ref].name));
      if (n.op == OpId::kStateWrite) sets.written.insert(StrCat(g->name, ".", module.states[n.ref].name));
    }
  }
  return sets;
}

Status CheckStates(const StateSets& before, const StateSets& after) {
  for (const std::string& s : before.written)
    if (!after.written.contains(s)) return Internal("the write of state '", s, "' was lost");
  for (const std::string& s : after.written)
    if (!before.written.contains(s)) return Internal("a write of state '", s, "' appeared");
  for (const std::string& s : after.read)
    if (!before.read.contains(s)) return Internal("a read of state '", s, "' appeared");
  return OkStatus();
}

}  // namespace dovetail
