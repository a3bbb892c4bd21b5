// Tokens of the text form.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace dovetail::text {

enum class TokenKind : uint8_t { kEnd, kWord, kString, kNumber, kSymbol };

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of a string: unescaped; of a symbol: the character or ".."
  size_t line = 1, column = 1;
  size_t begin = 0;  // offset in the source
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}
  Result<Token> Next();

 private:
  void Advance();
  std::string_view source_;
  size_t pos_ = 0, line_ = 1, column_ = 1;
};

}  // namespace dovetail::text
