// The expression half of the parser: a cursor over tokens and the functions that read one expression from it.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "llm/jinja_ast.h"
#include "llm/jinja_lexer.h"

namespace dovetail::jinja {

class ExprParser {
 public:
  explicit ExprParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token Take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool At(Token::Kind kind, std::string_view text = {}) const { return peek().kind == kind && (text.empty() || peek().text == text); }
  bool AtName(std::string_view text) const { return At(Token::kName, text); }
  bool AtOperator(std::string_view text) const { return At(Token::kOperator, text); }
  // Takes the token when it is that one.
  bool Skip(Token::Kind kind, std::string_view text = {});
  Status Expect(Token::Kind kind, std::string_view text, std::string_view what);
  Status Unexpected(std::string_view wanted) const;

  // expression [if condition [else other]]
  Result<ExprPtr> Expression();
  // One expression, or several with commas as a list.
  Result<ExprPtr> Tuple();
  // Without the ternary, as the iterable of a for needs.
  Result<ExprPtr> Or();
  // |filter|filter(args)... on `expr`, which may be null.
  Result<ExprPtr> Filters(ExprPtr expr);
  // The same without the first |, on null.
  Result<ExprPtr> FilterChain();

 private:
  using Rule = Result<ExprPtr> (ExprParser::*)();
  Result<ExprPtr> And();
  Result<ExprPtr> Not();
  Result<ExprPtr> Comparison();
  Result<ExprPtr> Sum();
  Result<ExprPtr> Concat();
  Result<ExprPtr> Product();
  Result<ExprPtr> Power();
  Result<ExprPtr> Unary();
  Result<ExprPtr> Signed();
  Result<ExprPtr> Primary();
  Result<ExprPtr> Bracketed();
  Result<ExprPtr> Postfix(ExprPtr expr);
  Result<ExprPtr> OneFilter(ExprPtr expr);
  Result<ExprPtr> Subscript(ExprPtr expr);
  Result<ExprPtr> FiltersAndTests(ExprPtr expr);
  Result<ExprPtr> Test(ExprPtr expr);
  Status Arguments(Expr* call);
  Result<ExprPtr> LeftToRight(Rule next, std::initializer_list<std::string_view> operators);
  Result<ExprPtr> Make(ExprKind kind, int line, std::string text, ExprPtr a = nullptr, ExprPtr b = nullptr);
  // Computes the depth and refuses what is too deep.
  Result<ExprPtr> Close(ExprPtr expr);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace dovetail::jinja
