// Runs a parsed template. Every step, and every byte of text made, is counted: a template cannot run or grow without end.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "llm/jinja_ast.h"

namespace dovetail::jinja {

struct Limits {
  uint64_t steps = 5'000'000;
  uint64_t bytes = 512u << 20;  // made in total, not held at once
};

constexpr int kMaxEvalDepth = 500;

struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
  // The argument at `place` or of that name; null when it is not given.
  const Value* Find(size_t place, std::string_view name) const;
  Result<int64_t> Int(size_t place, std::string_view name, int64_t otherwise) const;
  Result<std::string> Text(size_t place, std::string_view name, std::string_view otherwise) const;
};

class Evaluator {
 public:
  Evaluator(StringMap<Value> variables, Limits limits);
  // Appends to `out` what `body`, which must outlive the evaluator, writes.
  Status Run(const Body& body, std::string* out) { return Exec(body, out); }

  // For filters, tests and methods.
  Status Charge(uint64_t bytes);
  Result<Value> ApplyFilter(std::string_view name, const Value& value, const Args& args);
  Result<bool> ApplyTest(std::string_view name, const Value& value, const Args& args);
  // `path` may hold dots, as attribute= of a filter.
  Result<Value> GetPath(const Value& value, std::string_view path);
  Result<Value> GetItem(const Value& value, const Value& key);
  // What a for runs over: the items, keys or characters.
  Result<std::vector<Value>> Iterate(const Value& value);
  Result<bool> Contains(const Value& container, const Value& item);

 private:
  enum class Flow : unsigned char { kNone, kBreak, kContinue };

  Status Exec(const Body& body, std::string* out);
  Status ExecStmt(const Stmt& s, std::string* out);
  Status ExecFor(const Stmt& s, std::string* out);
  Status ExecSet(const Stmt& s);
  Status Assign(const std::vector<std::string>& targets, const Value& value);
  Status AssignOne(const std::string& target, Value value);

  Result<Value> Eval(const Expr& e);
  Result<Value> EvalNode(const Expr& e);
  Result<Value> EvalCompare(const Expr& e);
  Result<Value> EvalSlice(const Expr& e);
  Result<Value> EvalCall(const Expr& e);
  // A chain of filters around `inner`, which stands where its innermost argument is null.
  Result<Value> EvalFilters(const Expr& e, const Value* inner);
  Result<Args> EvalArgs(const Expr& e);
  Result<Value> CallBuiltin(Builtin builtin, Args args);
  Result<Value> CallMacro(const Stmt& macro, Args args);
  Result<Value> GetAttribute(const Value& value, std::string_view name);
  Value Lookup(const std::string& name) const;

  std::vector<StringMap<Value>> scopes_;  // [0]: the template's own variables
  size_t frame_ = 0;                      // the first scope that a macro sees besides [0]
  std::deque<Namespace> namespaces_;
  std::deque<LoopState> loops_;
  Limits left_;
  int depth_ = 0;
  Flow flow_ = Flow::kNone;
};

// Calls a method of a string, list or dict.
Result<Value> CallMethod(Evaluator& evaluator, const Value& self, std::string_view name, const Args& args);
// a op b for + - * / // % **.
Result<Value> Arithmetic(std::string_view op, const Value& a, const Value& b);

}  // namespace dovetail::jinja
