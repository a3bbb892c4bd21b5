// The expressions.
#include "llm/jinja_eval.h"

#include <algorithm>
#include <charconv>

#include "llm/jinja_lexer.h"
#include "llm/utf8.h"

namespace dovetail::jinja {
namespace {
constexpr int64_t kMaxRange = 100'000;

Value LoopMember(const LoopState& loop, std::string_view name) {
  const auto index = static_cast<int64_t>(loop.index), size = static_cast<int64_t>(loop.items->items.size());
  if (name == "index") return Value::Int(index + 1);
  if (name == "index0") return Value::Int(index);
  if (name == "revindex") return Value::Int(size - index);
  if (name == "revindex0") return Value::Int(size - index - 1);
  if (name == "first") return Value::Bool(index == 0);
  if (name == "last") return Value::Bool(index + 1 == size);
  if (name == "length") return Value::Int(size);
  if (name == "depth") return Value::Int(1);  // only recursive loops are deeper
  if (name == "depth0") return Value::Int(0);
  if (name == "previtem" && index > 0) return loop.items->items[loop.index - 1];
  if (name == "nextitem" && index + 1 < size) return loop.items->items[loop.index + 1];
  return Value::Missing(StrCat("loop.", name));
}

std::string NameOf(const Value& undefined, std::string_view otherwise) {
  const Undefined* u = undefined.as<Undefined>();
  return u && u->name ? *u->name : std::string(otherwise);
}
}  // namespace

const Value* Args::Find(size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Result<int64_t> Args::Int(size_t place, std::string_view name, int64_t otherwise) const {
  const Value* v = Find(place, name);
  int64_t i = otherwise;
  if (v != nullptr && !v->none() && !v->integer(&i)) return InvalidArgument("'", name, "' must be an integer, it is ", v->type());
  return i;
}

Result<std::string> Args::Text(size_t place, std::string_view name, std::string_view otherwise) const {
  const Value* v = Find(place, name);
  if (v == nullptr) return std::string(otherwise);
  if (v->text() == nullptr) return InvalidArgument("'", name, "' must be a string, it is ", v->type());
  return *v->text();
}

Result<Value> Evaluator::Eval(const Expr& e) {
  if (++depth_ > kMaxEvalDepth) return LineError(e.line, "calls are nested too deep");
  Status status = Charge(0);
  Result<Value> result = status.ok() ? EvalNode(e) : Result<Value>(std::move(status));
  --depth_;
  if (result.ok() || result.status().message().starts_with("line ")) return result;
  return Status(result.status().code(), StrCat("line ", e.line, ": ", result.status().message()));
}

Result<Value> Evaluator::EvalNode(const Expr& e) {
  switch (e.kind) {
    case ExprKind::kLiteral: return e.literal;
    case ExprKind::kName: return Lookup(e.text);
    case ExprKind::kList: {
      std::vector<Value> items;
      for (const ExprPtr& arg : e.args) {
        DT_ASSIGN_OR_RETURN(Value item, Eval(*arg));
        items.push_back(std::move(item));
      }
      DT_RETURN_IF_ERROR(Charge(items.size() * sizeof(Value)));
      return MakeList(std::move(items), e.text == "tuple");
    }
    case ExprKind::kDict: {
      Dict dict;
      for (size_t i = 0; i + 1 < e.args.size(); i += 2) {
        DT_ASSIGN_OR_RETURN(const Value key, Eval(*e.args[i]));
        DT_ASSIGN_OR_RETURN(Value value, Eval(*e.args[i + 1]));
        DT_RETURN_IF_ERROR(Charge(key.weight()));
        DT_RETURN_IF_ERROR(dict.Set(key, std::move(value)));
      }
      return MakeDict(std::move(dict));
    }
    case ExprKind::kNot: {
      DT_ASSIGN_OR_RETURN(const Value value, Eval(*e.args[0]));
      return Value::Bool(!value.truthy());
    }
    case ExprKind::kNegate:
    case ExprKind::kPositive: {
      DT_ASSIGN_OR_RETURN(const Value value, Eval(*e.args[0]));
      return Arithmetic(e.kind == ExprKind::kNegate ? "-" : "+", Value::Int(0), value);
    }
    case ExprKind::kBinary: {
      DT_ASSIGN_OR_RETURN(const Value a, Eval(*e.args[0]));
      DT_ASSIGN_OR_RETURN(const Value b, Eval(*e.args[1]));
      DT_ASSIGN_OR_RETURN(Value value, Arithmetic(e.text, a, b));
      DT_RETURN_IF_ERROR(Charge(value.weight()));
      return value;
    }
    case ExprKind::kConcat: {
      std::string text;
      for (const ExprPtr& arg : e.args) {
        DT_ASSIGN_OR_RETURN(const Value value, Eval(*arg));
        DT_RETURN_IF_ERROR(Charge(value.weight()));
        text += ToString(value);
      }
      return Value::Text(std::move(text));
    }
    case ExprKind::kCompare: return EvalCompare(e);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      DT_ASSIGN_OR_RETURN(Value left, Eval(*e.args[0]));
      if (left.truthy() == (e.kind == ExprKind::kOr)) return left;
      return Eval(*e.args[1]);
    }
    case ExprKind::kTernary: {
      DT_ASSIGN_OR_RETURN(const Value condition, Eval(*e.args[1]));
      if (condition.truthy()) return Eval(*e.args[0]);
      return e.args[2] ? Eval(*e.args[2]) : Result<Value>(Value());
    }
    case ExprKind::kAttribute: {
      DT_ASSIGN_OR_RETURN(const Value value, Eval(*e.args[0]));
      return GetAttribute(value, e.text);
    }
    case ExprKind::kIndex: {
      DT_ASSIGN_OR_RETURN(const Value value, Eval(*e.args[0]));
      DT_ASSIGN_OR_RETURN(const Value key, Eval(*e.args[1]));
      return GetItem(value, key);
    }
    case ExprKind::kSlice: return EvalSlice(e);
    case ExprKind::kCall: return EvalCall(e);
    case ExprKind::kFilter: return EvalFilters(e, nullptr);
    case ExprKind::kTest: {
      DT_ASSIGN_OR_RETURN(const Value value, Eval(*e.args[0]));
      DT_ASSIGN_OR_RETURN(const Args args, EvalArgs(e));
      DT_ASSIGN_OR_RETURN(const bool result, ApplyTest(e.text, value, args));
      return Value::Bool(result);
    }
  }
  return Internal("an expression of an unknown kind");
}

Result<Value> Evaluator::EvalFilters(const Expr& e, const Value* inner) {
  if (++depth_ > kMaxEvalDepth) return OutOfRange("calls are nested too deep");
  Value value;
  if (!e.args[0]) {
    value = *inner;
  } else if (inner != nullptr && e.args[0]->kind == ExprKind::kFilter) {
    DT_ASSIGN_OR_RETURN(value, EvalFilters(*e.args[0], inner));
  } else {
    DT_ASSIGN_OR_RETURN(value, Eval(*e.args[0]));
  }
  --depth_;
  DT_ASSIGN_OR_RETURN(const Args args, EvalArgs(e));
  DT_RETURN_IF_ERROR(Charge(value.weight()));
  DT_ASSIGN_OR_RETURN(Value result, ApplyFilter(e.text, value, args));
  DT_RETURN_IF_ERROR(Charge(result.weight()));
  return result;
}

Result<Value> Evaluator::EvalCompare(const Expr& e) {
  DT_ASSIGN_OR_RETURN(Value left, Eval(*e.args[0]));
  for (size_t i = 0; i < e.ops.size(); ++i) {
    DT_ASSIGN_OR_RETURN(Value right, Eval(*e.args[i + 1]));
    DT_RETURN_IF_ERROR(Charge(std::min(left.weight(), right.weight())));
    const std::string& op = e.ops[i];
    bool result;
    if (op == "==" || op == "!=") {
      result = Equal(left, right) == (op == "==");
    } else if (op == "in" || op == "not in") {
      DT_ASSIGN_OR_RETURN(const bool contained, Contains(right, left));
      result = contained == (op == "in");
    } else {
      DT_ASSIGN_OR_RETURN(const int order, Compare(left, right));
      result = op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0;
    }
    if (!result) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result<bool> Evaluator::Contains(const Value& container, const Value& item) {
  DT_RETURN_IF_ERROR(Charge(container.dict() ? 1 : container.weight()));
  if (const std::string* s = container.text()) {
    if (item.text() == nullptr) return InvalidArgument("'in' of a string needs a string, not ", item.type());
    return s->find(*item.text()) != std::string::npos;
  }
  if (const List* l = container.list()) {
    return std::any_of(l->items.begin(), l->items.end(), [&](const Value& v) { return Equal(v, item); });
  }
  if (const Dict* d = container.dict()) return d->Find(item) != nullptr;
  if (container.undefined()) return false;
  return InvalidArgument("'in' needs a string, list or dict, not ", container.type());
}

Result<Value> Evaluator::EvalSlice(const Expr& e) {
  DT_ASSIGN_OR_RETURN(const Value value, Eval(*e.args[0]));
  int64_t bounds[3] = {0, 0, 1};
  bool given[3] = {false, false, false};
  for (int i = 0; i < 3; ++i) {
    if (!e.args[static_cast<size_t>(i) + 1]) continue;
    DT_ASSIGN_OR_RETURN(const Value bound, Eval(*e.args[static_cast<size_t>(i) + 1]));
    if (bound.none()) continue;
    if (!bound.integer(&bounds[i])) return InvalidArgument("the bounds of a slice must be integers, not ", bound.type());
    given[i] = true;
  }
  const int64_t step = bounds[2];
  if (step == 0) return InvalidArgument("the step of a slice is 0");
  if (value.undefined()) return InvalidArgument("'", NameOf(value, "the value"), "' is undefined");
  if (!value.text() && !value.list()) return InvalidArgument("a ", value.type(), " cannot be sliced");
  DT_ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value));
  const auto size = static_cast<int64_t>(items.size());
  const auto clamp = [&](int64_t i, int64_t low, int64_t high) { return std::clamp(i < 0 ? i + size : i, low, high); };
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const int64_t begin = given[0] ? clamp(bounds[0], low, high) : step > 0 ? 0 : size - 1;
  const int64_t end = given[1] ? clamp(bounds[1], low, high) : step > 0 ? size : -1;
  std::vector<Value> out;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    out.push_back(items[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (value.list()) return MakeList(std::move(out));
  std::string text;
  for (const Value& v : out) text += *v.text();
  return Value::Text(std::move(text));
}

Result<std::vector<Value>> Evaluator::Iterate(const Value& value) {
  std::vector<Value> items;
  if (const List* l = value.list()) {
    DT_RETURN_IF_ERROR(Charge(l->items.size() * sizeof(Value)));
    items = l->items;
  } else if (const Dict* d = value.dict()) {
    DT_RETURN_IF_ERROR(Charge(d->items.size() * sizeof(Value)));
    for (const auto& item : d->items) items.push_back(item.first);
  } else if (const std::string* s = value.text()) {
    DT_RETURN_IF_ERROR(Charge(s->size() * (sizeof(Value) + sizeof(std::string))));
    for (size_t at = 0; at < s->size();) {
      const size_t size = ReadUtf8(*s, at).size;
      items.push_back(Value::Text(s->substr(at, size)));
      at += size;
    }
  } else if (!value.undefined()) {
    return InvalidArgument("a ", value.type(), " holds nothing to go over");
  }
  return items;
}

Result<Value> Evaluator::GetItem(const Value& value, const Value& key) {
  if (const std::string* name = key.text()) {
    if (value.dict()) {
      const Value* found = value.dict()->Find(key);
      return found ? *found : Value::Missing(*name);
    }
    return GetAttribute(value, *name);
  }
  if (value.undefined()) return InvalidArgument("'", NameOf(value, "the value"), "' is undefined");
  if (value.dict()) {
    const Value* found = value.dict()->Find(key);
    return found ? *found : Value::Missing(Repr(key));
  }
  int64_t i;
  if (!key.integer(&i)) return Value::Missing(key.type());
  if (const List* l = value.list()) {
    const auto size = static_cast<int64_t>(l->items.size());
    if (i < 0) i += size;
    return i >= 0 && i < size ? l->items[static_cast<size_t>(i)] : Value::Missing(std::to_string(i));
  }
  if (const std::string* s = value.text()) {
    DT_RETURN_IF_ERROR(Charge(s->size()));
    const auto size = static_cast<int64_t>(CountUtf8(*s));
    if (i < 0) i += size;
    if (i < 0 || i >= size) return Value::Missing(std::to_string(i));
    const size_t at = Utf8Offset(*s, static_cast<size_t>(i));
    return Value::Text(s->substr(at, ReadUtf8(*s, at).size));
  }
  return Value::Missing(std::to_string(i));
}

Result<Value> Evaluator::GetAttribute(const Value& value, std::string_view name) {
  if (value.undefined()) return InvalidArgument("'", NameOf(value, "the value"), "' is undefined, it has no '", name, "'");
  if (const Dict* d = value.dict()) {
    const Value* found = d->Find(name);
    return found ? *found : Value::Missing(name);
  }
  if (const auto* space = value.as<Namespace*>()) {
    const auto place = (*space)->members.find(name);
    return place == (*space)->members.end() ? Value::Missing(name) : place->second;
  }
  if (const auto* loop = value.as<LoopState*>()) return LoopMember(**loop, name);
  int64_t i;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), i);
  if (error == std::errc() && end == name.data() + name.size()) return GetItem(value, Value::Int(i));
  return Value::Missing(name);
}

Result<Value> Evaluator::GetPath(const Value& value, std::string_view path) {
  Value at = value;
  while (true) {
    const size_t dot = path.find('.');
    DT_ASSIGN_OR_RETURN(at, GetAttribute(at, path.substr(0, dot)));
    if (dot == std::string_view::npos) return at;
    path.remove_prefix(dot + 1);
  }
}

Result<Args> Evaluator::EvalArgs(const Expr& e) {
  Args args;
  for (size_t i = 1; i < e.args.size(); ++i) {
    DT_ASSIGN_OR_RETURN(Value value, Eval(*e.args[i]));
    args.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : e.named) {
    DT_ASSIGN_OR_RETURN(Value value, Eval(*expr));
    args.named.emplace_back(name, std::move(value));
  }
  return args;
}

Result<Value> Evaluator::EvalCall(const Expr& e) {
  const Expr& callee = *e.args[0];
  Value function;
  if (callee.kind == ExprKind::kAttribute) {
    DT_ASSIGN_OR_RETURN(const Value self, Eval(*callee.args[0]));
    DT_ASSIGN_OR_RETURN(Args args, EvalArgs(e));
    if (self.text() || self.list() || self.dict()) {
      DT_RETURN_IF_ERROR(Charge(self.weight()));
      DT_ASSIGN_OR_RETURN(Value result, CallMethod(*this, self, callee.text, args));
      DT_RETURN_IF_ERROR(Charge(result.weight()));
      return result;
    }
    if (const auto* loop = self.as<LoopState*>(); loop && callee.text == "cycle" && !args.positional.empty()) {
      return args.positional[(*loop)->index % args.positional.size()];
    }
    DT_ASSIGN_OR_RETURN(function, GetAttribute(self, callee.text));
  } else {
    DT_ASSIGN_OR_RETURN(function, Eval(callee));
  }
  DT_ASSIGN_OR_RETURN(Args args, EvalArgs(e));
  if (const Builtin* builtin = function.as<Builtin>()) return CallBuiltin(*builtin, std::move(args));
  if (const Macro* macro = function.as<Macro>()) return CallMacro(*macro->definition, std::move(args));
  if (function.undefined()) {
    const std::string name = NameOf(function, "the function");
    if (name == "strftime_now") return Unsupported("strftime_now is not supported: the prompt would depend on the clock");
    return InvalidArgument("the function '", name, "' is undefined");
  }
  return InvalidArgument("a ", function.type(), " is no function");
}

Result<Value> Evaluator::CallBuiltin(Builtin builtin, Args args) {
  switch (builtin) {
    case Builtin::kRaiseException:
      return InvalidArgument("the template refuses this conversation: ", args.positional.empty() ? std::string() : ToString(args.positional[0]));
    case Builtin::kNamespace: {
      DT_RETURN_IF_ERROR(Charge(sizeof(Namespace)));
      Namespace& space = namespaces_.emplace_back();
      for (auto& [name, value] : args.named) space.members.insert_or_assign(name, std::move(value));
      return Value(Value::Data(&space));
    }
    case Builtin::kDict: {
      Dict dict;
      if (!args.positional.empty()) {
        if (args.positional[0].dict() == nullptr) return InvalidArgument("dict() takes a dict");
        dict = *args.positional[0].dict();
      }
      for (auto& [name, value] : args.named) DT_RETURN_IF_ERROR(dict.Set(Value::Text(name), std::move(value)));
      return MakeDict(std::move(dict));
    }
    case Builtin::kRange: {
      int64_t bounds[3] = {0, 0, 1};
      const size_t n = args.positional.size();
      if (n < 1 || n > 3) return InvalidArgument("range() takes one to three integers");
      for (size_t i = 0; i < n; ++i) {
        if (!args.positional[i].integer(&bounds[i])) return InvalidArgument("range() takes integers, not ", args.positional[i].type());
      }
      if (n == 1) std::swap(bounds[0], bounds[1]);
      if (bounds[2] == 0) return InvalidArgument("the step of range() is 0");
      std::vector<Value> items;
      for (int64_t i = bounds[0]; bounds[2] > 0 ? i < bounds[1] : i > bounds[1];) {
        if (static_cast<int64_t>(items.size()) >= kMaxRange) return OutOfRange("range() is longer than ", kMaxRange);
        items.push_back(Value::Int(i));
        if (__builtin_add_overflow(i, bounds[2], &i)) break;
      }
      DT_RETURN_IF_ERROR(Charge(items.size() * sizeof(Value)));
      return MakeList(std::move(items));
    }
  }
  return Internal("a function of an unknown kind");
}

}  // namespace dovetail::jinja
