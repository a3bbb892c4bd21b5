// The statements.
#include <algorithm>

#include "llm/jinja_eval.h"
#include "llm/jinja_lexer.h"

namespace dovetail::jinja {
Evaluator::Evaluator(StringMap<Value> variables, Limits limits) : left_(limits) {
  variables.emplace("range", Value::Data(Builtin::kRange));
  variables.emplace("namespace", Value::Data(Builtin::kNamespace));
  variables.emplace("dict", Value::Data(Builtin::kDict));
  variables.emplace("raise_exception", Value::Data(Builtin::kRaiseException));
  scopes_.push_back(std::move(variables));
}

Status Evaluator::Charge(uint64_t bytes) {
  if (bytes > left_.bytes) return OutOfRange("the template makes too much text");
  left_.bytes -= bytes;
  if (left_.steps == 0) return OutOfRange("the template runs too long");
  --left_.steps;
  return OkStatus();
}

Status Evaluator::Exec(const Body& body, std::string* out) {
  if (++depth_ > kMaxEvalDepth) return OutOfRange("calls are nested too deep");
  for (const auto& statement : body) {
    Status status = Charge(0);
    if (status.ok()) status = ExecStmt(*statement, out);
    if (!status.ok()) {
      if (status.message().starts_with("line ")) return status;
      return Status(status.code(), StrCat("line ", statement->line, ": ", status.message()));
    }
    if (flow_ != Flow::kNone) break;
  }
  --depth_;
  return OkStatus();
}

Status Evaluator::ExecStmt(const Stmt& s, std::string* out) {
  switch (s.kind) {
    case StmtKind::kText:
      DT_RETURN_IF_ERROR(Charge(s.text.size()));
      *out += s.text;
      return OkStatus();
    case StmtKind::kOutput: {
      DT_ASSIGN_OR_RETURN(const Value value, Eval(*s.expr));
      DT_RETURN_IF_ERROR(Charge(value.weight()));
      *out += ToString(value);
      return OkStatus();
    }
    case StmtKind::kIf:
      for (const Branch& branch : s.branches) {
        bool taken = true;
        if (branch.condition) {
          DT_ASSIGN_OR_RETURN(const Value value, Eval(*branch.condition));
          taken = value.truthy();
        }
        if (taken) return Exec(branch.body, out);
      }
      return OkStatus();
    case StmtKind::kFor: return ExecFor(s, out);
    case StmtKind::kSet: return ExecSet(s);
    case StmtKind::kMacro: return AssignOne(s.text, Value(Macro{&s}));
    case StmtKind::kFilter: {
      std::string text;
      DT_RETURN_IF_ERROR(Exec(s.body, &text));
      const Value inner = Value::Text(std::move(text));
      DT_ASSIGN_OR_RETURN(const Value value, EvalFilters(*s.expr, &inner));
      DT_RETURN_IF_ERROR(Charge(value.weight()));
      *out += ToString(value);
      return OkStatus();
    }
    case StmtKind::kBlock: return Exec(s.body, out);
    case StmtKind::kBreak: flow_ = Flow::kBreak; return OkStatus();
    case StmtKind::kContinue: flow_ = Flow::kContinue; return OkStatus();
  }
  return OkStatus();
}

Status Evaluator::ExecFor(const Stmt& s, std::string* out) {
  DT_ASSIGN_OR_RETURN(const Value iterable, Eval(*s.expr));
  DT_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(iterable));
  scopes_.emplace_back();
  if (s.filter) {
    std::vector<Value> kept;
    for (Value& item : items) {
      DT_RETURN_IF_ERROR(Assign(s.targets, item));
      DT_ASSIGN_OR_RETURN(const Value keep, Eval(*s.filter));
      if (keep.truthy()) kept.push_back(std::move(item));
      scopes_.back().clear();
    }
    items = std::move(kept);
  }
  if (items.empty()) {
    scopes_.pop_back();
    return Exec(s.otherwise, out);
  }
  List list;
  list.items = std::move(items);
  LoopState& loop = loops_.emplace_back();
  loop.items = std::make_shared<const List>(std::move(list));
  for (; loop.index < loop.items->items.size(); ++loop.index) {
    scopes_.back().clear();
    scopes_.back().emplace("loop", Value::Data(&loop));
    DT_RETURN_IF_ERROR(Assign(s.targets, loop.items->items[loop.index]));
    DT_RETURN_IF_ERROR(Exec(s.body, out));
    const bool stop = flow_ == Flow::kBreak;
    flow_ = Flow::kNone;
    if (stop) break;
  }
  scopes_.pop_back();
  return OkStatus();
}

Status Evaluator::ExecSet(const Stmt& s) {
  if (!s.block) {
    DT_ASSIGN_OR_RETURN(const Value value, Eval(*s.expr));
    return Assign(s.targets, value);
  }
  std::string text;
  DT_RETURN_IF_ERROR(Exec(s.body, &text));
  Value value = Value::Text(std::move(text));
  if (s.expr) {
    DT_ASSIGN_OR_RETURN(value, EvalFilters(*s.expr, &value));
  }
  return Assign(s.targets, value);
}

Status Evaluator::Assign(const std::vector<std::string>& targets, const Value& value) {
  if (targets.size() == 1) return AssignOne(targets[0], value);
  DT_ASSIGN_OR_RETURN(const std::vector<Value> parts, Iterate(value));
  if (parts.size() != targets.size()) return InvalidArgument(targets.size(), " variables cannot take ", parts.size(), " values");
  for (size_t i = 0; i < targets.size(); ++i) DT_RETURN_IF_ERROR(AssignOne(targets[i], parts[i]));
  return OkStatus();
}

Status Evaluator::AssignOne(const std::string& target, Value value) {
  const size_t dot = target.find('.');
  if (dot == std::string::npos) {
    scopes_.back().insert_or_assign(target, std::move(value));
    return OkStatus();
  }
  const std::string name = target.substr(0, dot);
  const Value holder = Lookup(name);
  Namespace* const* space = holder.as<Namespace*>();
  if (space == nullptr) return InvalidArgument("'", name, "' is no namespace: only a namespace() can be changed");
  (*space)->members.insert_or_assign(target.substr(dot + 1), std::move(value));
  return OkStatus();
}

Value Evaluator::Lookup(const std::string& name) const {
  for (size_t i = scopes_.size(); i-- > frame_;) {
    if (const auto place = scopes_[i].find(name); place != scopes_[i].end()) return place->second;
  }
  if (const auto place = scopes_[0].find(name); place != scopes_[0].end()) return place->second;
  return Value::Missing(name);
}

Result<Value> Evaluator::CallMacro(const Stmt& macro, Args args) {
  if (args.positional.size() > macro.params.size()) return InvalidArgument("the macro '", macro.text, "' takes ", macro.params.size(), " arguments");
  const size_t caller = std::exchange(frame_, scopes_.size());
  scopes_.emplace_back();
  for (size_t i = 0; i < macro.params.size(); ++i) {
    const auto& [name, otherwise] = macro.params[i];
    Value value = Value::Missing(name);
    if (const Value* given = args.Find(i, name)) {
      value = *given;
    } else if (otherwise) {
      DT_ASSIGN_OR_RETURN(value, Eval(*otherwise));
    }
    scopes_.back().insert_or_assign(name, std::move(value));
  }
  for (const auto& [name, value] : args.named) {
    if (std::none_of(macro.params.begin(), macro.params.end(), [&](const auto& p) { return p.first == name; })) {
      return InvalidArgument("the macro '", macro.text, "' has no parameter '", name, "'");
    }
  }
  std::string out;
  DT_RETURN_IF_ERROR(Exec(macro.body, &out));
  scopes_.resize(frame_);
  frame_ = caller;
  return Value::Text(std::move(out));
}

}  // namespace dovetail::jinja
