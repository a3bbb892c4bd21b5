// The syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "llm/jinja_value.h"

namespace dovetail::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind : unsigned char {
  kLiteral,    // literal
  kName,       // text
  kList,       // args; text is "tuple" for one
  kDict,       // args: key, value, key, value...
  kNot,        // args[0]
  kNegate,     // args[0]
  kPositive,   // args[0]
  kBinary,     // args[0] text args[1]; text is + - * / // % **
  kConcat,     // args joined as text
  kCompare,    // args[0] ops[0] args[1] ops[1] args[2]...
  kAnd, kOr,   // args[0], args[1]
  kTernary,    // args[0] if args[1] else args[2] (may be null)
  kAttribute,  // args[0].text
  kIndex,      // args[0][args[1]]
  kSlice,      // args[0][args[1]:args[2]:args[3]], each of the last three may be null
  kCall,       // args[0](args[1]..., named)
  kFilter,     // args[0]|text(args[1]..., named)
  kTest,       // args[0] is text(args[1]...)
};

struct Expr {
  ExprKind kind = ExprKind::kLiteral;
  int line = 0;
  int depth = 1;
  std::string text;
  Value literal;
  std::vector<ExprPtr> args;
  std::vector<std::string> ops;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

enum class StmtKind : unsigned char {
  kText,      // text
  kOutput,    // expr
  kIf,        // branches; a null condition is else
  kFor,       // targets in expr if filter: body, otherwise
  kSet,       // targets = expr, or (block) targets[0] = body through expr's filters when expr is there
  kMacro,     // text(params): body
  kFilter,    // expr applied to body: a chain of kFilter whose innermost argument is a null
  kBlock,     // body as it is: {% generation %}, {% with %} without scope
  kBreak, kContinue,
};

struct Branch {
  ExprPtr condition;
  Body body;
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 0;
  std::string text;
  std::vector<std::string> targets;  // "name" or "namespace.member"
  ExprPtr expr, filter;
  bool block = false;
  std::vector<Branch> branches;
  Body body, otherwise;
  std::vector<std::pair<std::string, ExprPtr>> params;  // with their defaults
};

}  // namespace dovetail::jinja
