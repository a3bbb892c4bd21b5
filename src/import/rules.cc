#include "import/rules.h"

#include <unordered_map>

namespace dovetail::pt2 {
namespace {

const std::unordered_map<std::string_view, RuleFn>& Rules() {
  static const auto* rules = [] {
    auto* table = new std::unordered_map<std::string_view, RuleFn>;
    for (const auto& family : {kElementwiseRules, kViewRules, kReductionRules, kCreationRules, kNeuralRules, kIndexingRules, kInPlaceRules, kRecurrentRules,
                               kQuantizedRules, kEinsumRules, kResamplingRules, kNormalizationRules})
      for (const Rule& rule : family) table->emplace(rule.target, rule.apply);
    return table;
  }();
  return *rules;
}

const std::unordered_map<std::string_view, OpId>& Renamed() {
  static const auto* renamed = [] {
    auto* table = new std::unordered_map<std::string_view, OpId>;
    for (size_t i = 0; i < static_cast<size_t>(OpId::kCount); ++i) {
      std::string_view names = GetOp(static_cast<OpId>(i)).imports;
      while (!names.empty()) {
        const size_t blank = names.find(' ');
        if (blank != 0) table->emplace(names.substr(0, blank), static_cast<OpId>(i));
        names = blank == std::string_view::npos ? std::string_view() : names.substr(blank + 1);
      }
    }
    return table;
  }();
  return *renamed;
}

// Arguments without a meaning here: where and how torch keeps the result.
bool IsPlacement(std::string_view name) {
  return name == "device" || name == "layout" || name == "pin_memory" || name == "memory_format" || name == "non_blocking" || name == "requires_grad";
}

Attr ReadAttr(Call& call, const SchemaArg& arg) {
  switch (arg.kind) {
    case ArgKind::kBool: return call.Bool(arg.name, false);
    case ArgKind::kInt: return call.SymInt(arg.name);
    case ArgKind::kFloat: return call.Float(arg.name);
    case ArgKind::kScalar: {
      Attr scalar = call.Scalar(arg.name);
      if (const Dim* d = scalar.get<Dim>()) call.CheckDim(*d);
      return scalar;
    }
    case ArgKind::kString: return std::string(call.String(arg.name, ""));
    case ArgKind::kIntList: return call.SymInts(arg.name);
    case ArgKind::kDType: return call.Type(arg.name, DType::kNone);
    default: call.Fail(Unsupported("the argument '", arg.name, "'")); return {};
  }
}

void ApplyRenamed(OpId op, Call& call) {
  const Schema& schema = GetSchema(op);
  for (const NamedArg& a : call.node().inputs)
    if (a.value.type != ArgType::kNone && !schema.Find(a.name) && !IsPlacement(a.name)) return call.Fail(Unsupported("the argument '", a.name, "'"));
  std::vector<ValueId> operands;
  std::vector<Attr> attrs(static_cast<size_t>(schema.other_args));
  for (const SchemaArg& arg : schema.args) {
    if (arg.kind == ArgKind::kTensor) {
      operands.push_back(call.Tensor(arg.name));
    } else if (arg.kind == ArgKind::kOptionalTensor) {
      operands.push_back(call.OptionalTensor(arg.name));
    } else if (IsListOfTensors(arg.kind)) {
      for (ValueId v : call.Tensors(arg.name)) operands.push_back(v);
    } else if (arg.kind != ArgKind::kIgnored) {
      Attr& attr = attrs[static_cast<size_t>(arg.index)];
      attr = arg.default_value;
      if (call.Has(arg.name)) attr = ReadAttr(call, arg);
      else if (!arg.has_default && !arg.optional) call.Fail(Corrupt("the argument '", arg.name, "' is missing"));
    }
  }
  call.Return(call.EmitWith(op, std::move(operands), std::move(attrs), schema.results.size()));
}

bool ApplyOutOfPlace(std::string_view target, Call& call) {
  if (auto rule = Rules().find(target); rule != Rules().end()) {
    rule->second(call);
    return true;
  }
  if (auto op = Renamed().find(target); op != Renamed().end()) {
    ApplyRenamed(op->second, call);
    return true;
  }
  return false;
}

}  // namespace

std::vector<double> Numbers(const Constant& constant) {
  Constant wide = constant;
  wide.type.dtype = DType::kF64;
  std::vector<double> numbers(wide.nbytes() / sizeof(double));
  wide.CopyTo(reinterpret_cast<std::byte*>(numbers.data()));
  return numbers;
}

bool ApplyRule(std::string_view target, Call& call) {
  if (ApplyOutOfPlace(target, call)) return true;
  const size_t dot = target.rfind('.');
  if (dot == std::string_view::npos || dot < 2 || target[dot - 1] != '_' || call.node().inputs.empty()) return false;
  if (!ApplyOutOfPlace(StrCat(target.substr(0, dot - 1), target.substr(dot)), call)) return false;
  call.WriteResultTo(call.node().inputs[0].name);
  return true;
}

bool IsAssertion(std::string_view target) {
  for (std::string_view prefix : {"aten._assert_", "aten.sym_constrain_range", "aten._functional_assert", "aten._functional_sym_constrain"})
    if (target.starts_with(prefix)) return true;
  return false;
}

}  // namespace dovetail::pt2
