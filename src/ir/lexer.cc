#include "ir/lexer.h"

#include <cctype>

namespace dovetail::text {
namespace {
bool IsWordStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool IsWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }
}  // namespace

void Lexer::Advance() {
  if (source_[pos_] == '\n') {
    ++line_;
    column_ = 0;
  }
  ++column_;
  ++pos_;
}

Result<Token> Lexer::Next() {
  while (pos_ < source_.size()) {
    if (std::isspace(static_cast<unsigned char>(source_[pos_]))) {
      Advance();
    } else if (source_.substr(pos_, 2) == "//") {
      while (pos_ < source_.size() && source_[pos_] != '\n') Advance();
    } else {
      break;
    }
  }
  Token t;
  t.line = line_;
  t.column = column_;
  t.begin = pos_;
  if (pos_ >= source_.size()) return t;
  const char c = source_[pos_];
  if (IsWordStart(c)) {
    t.kind = TokenKind::kWord;
    while (pos_ < source_.size() && IsWord(source_[pos_])) t.text += source_[pos_], Advance();
    return t;
  }
  if (std::isdigit(static_cast<unsigned char>(c))) {
    // Also value names such as 3 and ranges such as 1..63: a dot followed by a dot ends the number.
    t.kind = TokenKind::kNumber;
    while (pos_ < source_.size()) {
      const char d = source_[pos_];
      const bool exponent_sign = (d == '-' || d == '+') && !t.text.empty() && t.text.back() == 'e';
      if (d == '.' && source_.substr(pos_, 2) == "..") break;
      if (!IsWord(d) && !exponent_sign) break;
      t.text += d;
      Advance();
    }
    return t;
  }
  if (c == '"') {
    t.kind = TokenKind::kString;
    Advance();
    while (pos_ < source_.size() && source_[pos_] != '"') {
      char d = source_[pos_];
      if (d == '\\' && pos_ + 1 < source_.size()) {
        Advance();
        d = source_[pos_] == 'n' ? '\n' : source_[pos_];
      }
      t.text += d;
      Advance();
    }
    if (pos_ >= source_.size()) return InvalidArgument(t.line, ":", t.column, ": a string without its end");
    Advance();
    return t;
  }
  t.kind = TokenKind::kSymbol;
  t.text = c;
  Advance();
  if (c == '.' && pos_ < source_.size() && source_[pos_] == '.') {
    t.text = "..";
    Advance();
  }
  return t;
}

}  // namespace dovetail::text
