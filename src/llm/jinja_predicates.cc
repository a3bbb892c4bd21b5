// The tests of the language: value is name(args).
#include "llm/jinja_eval.h"
#include "llm/jinja_text.h"

namespace dovetail::jinja {
namespace {
using Predicate = bool (*)(const Value&);
struct Row {
  std::string_view name;
  Predicate holds;
};
constexpr Row kPredicates[] = {
    {"defined", [](const Value& v) { return !v.undefined(); }},
    {"undefined", [](const Value& v) { return v.undefined(); }},
    {"none", [](const Value& v) { return v.none(); }},
    {"string", [](const Value& v) { return v.text() != nullptr; }},
    {"mapping", [](const Value& v) { return v.dict() != nullptr; }},
    {"iterable", [](const Value& v) { return v.text() || v.list() || v.dict() || v.undefined(); }},
    {"sequence", [](const Value& v) { return v.text() || v.list() || v.dict() || v.undefined(); }},
    {"number", [](const Value& v) { double d; return v.number(&d); }},
    {"integer", [](const Value& v) { return v.as<int64_t>() != nullptr; }},
    {"float", [](const Value& v) { return v.as<double>() != nullptr; }},
    {"boolean", [](const Value& v) { return v.as<bool>() != nullptr; }},
    {"true", [](const Value& v) { return v.as<bool>() && *v.as<bool>(); }},
    {"false", [](const Value& v) { return v.as<bool>() && !*v.as<bool>(); }},
    {"callable", [](const Value& v) { return v.as<Builtin>() || v.as<Macro>(); }},
    {"upper", [](const Value& v) { return v.text() && Upper(*v.text()) == *v.text() && Upper(*v.text()) != Lower(*v.text()); }},
    {"lower", [](const Value& v) { return v.text() && Lower(*v.text()) == *v.text() && Upper(*v.text()) != Lower(*v.text()); }},
};

struct Comparison {
  std::string_view name, op;
};
constexpr Comparison kComparisons[] = {
    {"equalto", "=="}, {"eq", "=="}, {"==", "=="}, {"sameas", "=="}, {"ne", "!="}, {"!=", "!="}, {"lt", "<"}, {"lessthan", "<"}, {"<", "<"},
    {"le", "<="}, {"<=", "<="}, {"gt", ">"}, {"greaterthan", ">"}, {">", ">"}, {"ge", ">="}, {">=", ">="},
};
}  // namespace

Result<bool> Evaluator::ApplyTest(std::string_view name, const Value& value, const Args& args) {
  DT_RETURN_IF_ERROR(Charge(value.text() ? value.weight() : 1));
  for (const Row& row : kPredicates) {
    if (row.name == name) return row.holds(value);
  }
  const Value* argument = args.Find(0, "other");
  int64_t i, by = 2;
  if (name == "even" || name == "odd" || name == "divisibleby") {
    if (!value.integer(&i)) return InvalidArgument("'is ", name, "' takes an integer, not ", value.type());
    if (name == "divisibleby" && (!argument || !argument->integer(&by) || by == 0)) return InvalidArgument("'is divisibleby' needs an integer that is not 0");
    const bool divisible = by == -1 || i % by == 0;
    return divisible == (name != "odd");
  }
  if (name == "filter" || name == "test") return Unsupported("the test '", name, "' is not supported");
  for (const Comparison& c : kComparisons) {
    if (c.name != name) continue;
    if (!argument) return InvalidArgument("'is ", name, "' needs something to compare with");
    DT_RETURN_IF_ERROR(Charge(value.weight()));
    if (c.op == "==" || c.op == "!=") return Equal(value, *argument) == (c.op == "==");
    DT_ASSIGN_OR_RETURN(const int order, Compare(value, *argument));
    if (c.op == "<") return order < 0;
    if (c.op == "<=") return order <= 0;
    return c.op == ">" ? order > 0 : order >= 0;
  }
  if (name == "in") {
    if (!argument) return InvalidArgument("'is in' needs a list, dict or string");
    return Contains(*argument, value);
  }
  return Unsupported("the test '", name, "' is not supported");
}

}  // namespace dovetail::jinja
