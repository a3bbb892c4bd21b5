#include "llm/jinja_parse_expr.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace dovetail::jinja {
namespace {
constexpr int kMaxNesting = 60, kMaxExprDepth = 200;

struct Nested {
  explicit Nested(int* depth) : depth_(depth) { ++*depth_; }
  ~Nested() { --*depth_; }
  int* depth_;
};
}  // namespace

bool ExprParser::Skip(Token::Kind kind, std::string_view text) {
  if (!At(kind, text)) return false;
  Take();
  return true;
}

Status ExprParser::Unexpected(std::string_view wanted) const {
  const Token& t = peek();
  std::string found;
  switch (t.kind) {
    case Token::kEnd: found = "the end of the template"; break;
    case Token::kBlockEnd: found = "%}"; break;
    case Token::kVariableEnd: found = "}}"; break;
    default: found = StrCat("'", t.text, "'");
  }
  return LineError(t.line, "expected ", wanted, ", found ", found);
}

Status ExprParser::Expect(Token::Kind kind, std::string_view text, std::string_view what) {
  return Skip(kind, text) ? OkStatus() : Unexpected(what);
}

Result<ExprPtr> ExprParser::Close(ExprPtr expr) {
  const auto see = [&](const ExprPtr& child) {
    if (child) expr->depth = std::max(expr->depth, child->depth + 1);
  };
  for (const ExprPtr& child : expr->args) see(child);
  for (const auto& [name, child] : expr->named) see(child);
  if (expr->depth > kMaxExprDepth) return LineError(expr->line, "the expression is more than ", kMaxExprDepth, " operations deep");
  return expr;
}

Result<ExprPtr> ExprParser::Make(ExprKind kind, int line, std::string text, ExprPtr a, ExprPtr b) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  expr->text = std::move(text);
  if (a) expr->args.push_back(std::move(a));
  if (b) expr->args.push_back(std::move(b));
  return Close(std::move(expr));
}

Result<ExprPtr> ExprParser::Expression() {
  const Nested nested(&nesting_);
  if (nesting_ > kMaxNesting) return LineError(peek().line, "expressions are nested more than ", kMaxNesting, " deep");
  DT_ASSIGN_OR_RETURN(ExprPtr value, Or());
  while (AtName("if")) {
    const int line = Take().line;
    DT_ASSIGN_OR_RETURN(ExprPtr condition, Or());
    ExprPtr other;
    if (Skip(Token::kName, "else")) {
      DT_ASSIGN_OR_RETURN(other, Expression());
    }
    DT_ASSIGN_OR_RETURN(value, Make(ExprKind::kTernary, line, {}, std::move(value), std::move(condition)));
    value->args.push_back(std::move(other));
    DT_ASSIGN_OR_RETURN(value, Close(std::move(value)));
  }
  return value;
}

Result<ExprPtr> ExprParser::Tuple() {
  const int line = peek().line;
  DT_ASSIGN_OR_RETURN(ExprPtr first, Expression());
  if (!AtOperator(",")) return first;
  DT_ASSIGN_OR_RETURN(ExprPtr list, Make(ExprKind::kList, line, "tuple", std::move(first)));
  while (Skip(Token::kOperator, ",")) {
    if (AtOperator(")") || At(Token::kBlockEnd) || At(Token::kVariableEnd)) break;
    DT_ASSIGN_OR_RETURN(ExprPtr item, Expression());
    list->args.push_back(std::move(item));
  }
  return Close(std::move(list));
}

Result<ExprPtr> ExprParser::Or() {
  DT_ASSIGN_OR_RETURN(ExprPtr left, And());
  while (AtName("or")) {
    const int line = Take().line;
    DT_ASSIGN_OR_RETURN(ExprPtr right, And());
    DT_ASSIGN_OR_RETURN(left, Make(ExprKind::kOr, line, {}, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExprParser::And() {
  DT_ASSIGN_OR_RETURN(ExprPtr left, Not());
  while (AtName("and")) {
    const int line = Take().line;
    DT_ASSIGN_OR_RETURN(ExprPtr right, Not());
    DT_ASSIGN_OR_RETURN(left, Make(ExprKind::kAnd, line, {}, std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExprParser::Not() {
  const Nested nested(&nesting_);
  if (nesting_ > kMaxNesting) return LineError(peek().line, "expressions are nested more than ", kMaxNesting, " deep");
  if (!AtName("not")) return Comparison();
  const int line = Take().line;
  DT_ASSIGN_OR_RETURN(ExprPtr operand, Not());
  return Make(ExprKind::kNot, line, {}, std::move(operand));
}

Result<ExprPtr> ExprParser::Comparison() {
  DT_ASSIGN_OR_RETURN(ExprPtr left, Sum());
  ExprPtr chain;
  while (true) {
    std::string op;
    for (const std::string_view known : {"==", "!=", "<=", ">=", "<", ">"}) {
      if (AtOperator(known)) op = known;
    }
    if (AtName("in")) op = "in";
    if (AtName("not") && peek(1).kind == Token::kName && peek(1).text == "in") {
      Take();
      op = "not in";
    }
    if (op.empty()) break;
    const int line = Take().line;
    DT_ASSIGN_OR_RETURN(ExprPtr right, Sum());
    if (!chain) {
      DT_ASSIGN_OR_RETURN(chain, Make(ExprKind::kCompare, line, {}, std::move(left)));
    }
    chain->ops.push_back(std::move(op));
    chain->args.push_back(std::move(right));
  }
  if (!chain) return left;
  return Close(std::move(chain));
}

Result<ExprPtr> ExprParser::LeftToRight(Rule next, std::initializer_list<std::string_view> operators) {
  DT_ASSIGN_OR_RETURN(ExprPtr left, (this->*next)());
  while (std::any_of(operators.begin(), operators.end(), [&](std::string_view op) { return AtOperator(op); })) {
    Token op = Take();
    DT_ASSIGN_OR_RETURN(ExprPtr right, (this->*next)());
    DT_ASSIGN_OR_RETURN(left, Make(ExprKind::kBinary, op.line, std::move(op.text), std::move(left), std::move(right)));
  }
  return left;
}

Result<ExprPtr> ExprParser::Sum() { return LeftToRight(&ExprParser::Concat, {"+", "-"}); }
Result<ExprPtr> ExprParser::Product() { return LeftToRight(&ExprParser::Power, {"*", "/", "//", "%"}); }
Result<ExprPtr> ExprParser::Power() { return LeftToRight(&ExprParser::Unary, {"**"}); }

Result<ExprPtr> ExprParser::Concat() {
  DT_ASSIGN_OR_RETURN(ExprPtr first, Product());
  if (!AtOperator("~")) return first;
  DT_ASSIGN_OR_RETURN(ExprPtr concat, Make(ExprKind::kConcat, peek().line, {}, std::move(first)));
  while (Skip(Token::kOperator, "~")) {
    DT_ASSIGN_OR_RETURN(ExprPtr next, Product());
    concat->args.push_back(std::move(next));
  }
  return Close(std::move(concat));
}

Result<ExprPtr> ExprParser::Unary() {
  DT_ASSIGN_OR_RETURN(ExprPtr expr, Signed());
  return FiltersAndTests(std::move(expr));
}

// A sign binds tighter than a filter: -1|abs is (-1)|abs.
Result<ExprPtr> ExprParser::Signed() {
  const Nested nested(&nesting_);
  if (nesting_ > kMaxNesting) return LineError(peek().line, "expressions are nested more than ", kMaxNesting, " deep");
  const bool minus = AtOperator("-");
  if (!minus && !AtOperator("+")) {
    DT_ASSIGN_OR_RETURN(ExprPtr expr, Primary());
    return Postfix(std::move(expr));
  }
  const int line = Take().line;
  DT_ASSIGN_OR_RETURN(ExprPtr operand, Signed());
  return Make(minus ? ExprKind::kNegate : ExprKind::kPositive, line, {}, std::move(operand));
}

Result<ExprPtr> ExprParser::Primary() {
  const Token token = peek();
  Value literal;
  if (token.kind == Token::kName) {
    Take();
    const std::string& name = token.text;
    if (name == "true" || name == "True") {
      literal = Value::Bool(true);
    } else if (name == "false" || name == "False") {
      literal = Value::Bool(false);
    } else if (name == "none" || name == "None") {
      literal = Value::Nothing();
    } else if (name == "if" || name == "else" || name == "and" || name == "or" || name == "not" || name == "in" || name == "is") {
      return LineError(token.line, "expected an expression, found '", name, "'");
    } else {
      return Make(ExprKind::kName, token.line, name);
    }
  } else if (token.kind == Token::kString) {
    std::string text;
    while (At(Token::kString)) text += Take().text;  // neighbours are one string, as in Python
    literal = Value::Text(std::move(text));
  } else if (token.kind == Token::kInt) {
    Take();
    int64_t i = 0;
    const auto [end, error] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), i);
    if (error != std::errc() || *end != '\0') return LineError(token.line, "the integer ", token.text, " is too large");
    literal = Value::Int(i);
  } else if (token.kind == Token::kFloat) {
    Take();
    double d = 0;
    std::from_chars(token.text.data(), token.text.data() + token.text.size(), d);
    literal = Value::Float(d);
  } else {
    return Bracketed();
  }
  DT_ASSIGN_OR_RETURN(ExprPtr expr, Make(ExprKind::kLiteral, token.line, {}));
  expr->literal = std::move(literal);
  return expr;
}

Result<ExprPtr> ExprParser::Bracketed() {
  const int line = peek().line;
  if (Skip(Token::kOperator, "(")) {
    if (Skip(Token::kOperator, ")")) return Make(ExprKind::kList, line, "tuple");
    DT_ASSIGN_OR_RETURN(ExprPtr inner, Tuple());
    DT_RETURN_IF_ERROR(Expect(Token::kOperator, ")", "')'"));
    return inner;
  }
  const bool list = AtOperator("[");
  if (!list && !AtOperator("{")) return Unexpected("an expression");
  Take();
  const std::string_view close = list ? "]" : "}";
  DT_ASSIGN_OR_RETURN(ExprPtr expr, Make(list ? ExprKind::kList : ExprKind::kDict, line, {}));
  while (!AtOperator(close)) {
    DT_ASSIGN_OR_RETURN(ExprPtr item, Expression());
    expr->args.push_back(std::move(item));
    if (!list) {
      DT_RETURN_IF_ERROR(Expect(Token::kOperator, ":", "':'"));
      DT_ASSIGN_OR_RETURN(ExprPtr value, Expression());
      expr->args.push_back(std::move(value));
    }
    if (!AtOperator(close)) DT_RETURN_IF_ERROR(Expect(Token::kOperator, ",", "','"));
  }
  Take();
  return Close(std::move(expr));
}

Result<ExprPtr> ExprParser::Postfix(ExprPtr expr) {
  while (true) {
    const int line = peek().line;
    if (Skip(Token::kOperator, ".")) {
      if (!At(Token::kName) && !At(Token::kInt)) return Unexpected("a name after '.'");
      Token name = Take();
      DT_ASSIGN_OR_RETURN(expr, Make(ExprKind::kAttribute, line, std::move(name.text), std::move(expr)));
    } else if (Skip(Token::kOperator, "[")) {
      DT_ASSIGN_OR_RETURN(expr, Subscript(std::move(expr)));
    } else if (AtOperator("(")) {
      DT_ASSIGN_OR_RETURN(expr, Make(ExprKind::kCall, line, {}, std::move(expr)));
      DT_RETURN_IF_ERROR(Arguments(expr.get()));
      DT_ASSIGN_OR_RETURN(expr, Close(std::move(expr)));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> ExprParser::Subscript(ExprPtr expr) {
  const int line = peek().line;
  ExprPtr parts[3];
  int part = 0;
  while (!AtOperator("]")) {
    if (Skip(Token::kOperator, ":")) {
      if (++part > 2) return LineError(line, "a slice has at most two ':'");
      continue;
    }
    if (parts[part]) return Unexpected("']'");
    DT_ASSIGN_OR_RETURN(parts[part], Expression());
  }
  const bool slice = part > 0;
  Take();
  if (!slice && !parts[0]) return LineError(line, "[] needs an index");
  DT_ASSIGN_OR_RETURN(ExprPtr node, Make(slice ? ExprKind::kSlice : ExprKind::kIndex, line, {}, std::move(expr)));
  for (int i = 0; i < (slice ? 3 : 1); ++i) node->args.push_back(std::move(parts[i]));
  return Close(std::move(node));
}

Status ExprParser::Arguments(Expr* call) {
  DT_RETURN_IF_ERROR(Expect(Token::kOperator, "(", "'('"));
  while (!AtOperator(")")) {
    if (At(Token::kName) && peek(1).kind == Token::kOperator && peek(1).text == "=") {
      std::string name = Take().text;
      Take();
      DT_ASSIGN_OR_RETURN(ExprPtr value, Expression());
      call->named.emplace_back(std::move(name), std::move(value));
    } else {
      DT_ASSIGN_OR_RETURN(ExprPtr value, Expression());
      if (!call->named.empty()) return LineError(value->line, "an argument without a name follows one with a name");
      call->args.push_back(std::move(value));
    }
    if (!AtOperator(")")) DT_RETURN_IF_ERROR(Expect(Token::kOperator, ",", "',' or ')'"));
  }
  Take();
  return OkStatus();
}

Result<ExprPtr> ExprParser::OneFilter(ExprPtr expr) {
  if (!At(Token::kName)) return Unexpected("the name of a filter");
  Token name = Take();
  DT_ASSIGN_OR_RETURN(ExprPtr filter, Make(ExprKind::kFilter, name.line, std::move(name.text)));
  filter->args.push_back(std::move(expr));
  if (AtOperator("(")) DT_RETURN_IF_ERROR(Arguments(filter.get()));
  return Close(std::move(filter));
}

Result<ExprPtr> ExprParser::Filters(ExprPtr expr) {
  while (Skip(Token::kOperator, "|")) {
    DT_ASSIGN_OR_RETURN(expr, OneFilter(std::move(expr)));
  }
  return expr;
}

Result<ExprPtr> ExprParser::FilterChain() {
  DT_ASSIGN_OR_RETURN(ExprPtr first, OneFilter(nullptr));
  return Filters(std::move(first));
}

Result<ExprPtr> ExprParser::FiltersAndTests(ExprPtr expr) {
  while (true) {
    if (AtOperator("|")) {
      DT_ASSIGN_OR_RETURN(expr, Filters(std::move(expr)));
    } else if (AtName("is")) {
      DT_ASSIGN_OR_RETURN(expr, Test(std::move(expr)));
    } else if (AtOperator("(")) {  // as Jinja: x|f (args) calls what the filter gives
      return Postfix(std::move(expr));
    } else {
      return expr;
    }
  }
}

Result<ExprPtr> ExprParser::Test(ExprPtr expr) {
  const int line = Take().line;
  const bool negated = Skip(Token::kName, "not");
  if (!At(Token::kName)) return Unexpected("the name of a test");
  DT_ASSIGN_OR_RETURN(ExprPtr test, Make(ExprKind::kTest, line, Take().text, std::move(expr)));
  const Token& next = peek();
  const bool keyword = next.kind == Token::kName && (next.text == "else" || next.text == "or" || next.text == "and" || next.text == "is" ||
                                                     next.text == "if" || next.text == "in" || next.text == "not");
  if (AtOperator("(")) {
    DT_RETURN_IF_ERROR(Arguments(test.get()));
  } else if ((next.kind == Token::kName && !keyword) || next.kind == Token::kString || next.kind == Token::kInt ||
             next.kind == Token::kFloat || AtOperator("[") || AtOperator("{")) {
    DT_ASSIGN_OR_RETURN(ExprPtr argument, Primary());
    DT_ASSIGN_OR_RETURN(argument, Postfix(std::move(argument)));
    test->args.push_back(std::move(argument));
  }
  DT_ASSIGN_OR_RETURN(test, Close(std::move(test)));
  if (!negated) return test;
  return Make(ExprKind::kNot, line, {}, std::move(test));
}

}  // namespace dovetail::jinja
