// A template as tokens: plain text, and what stands inside {{ }} and {% %}.
//
// Whitespace is cut as transformers sets Jinja: the newline after a block goes, and spaces before a block that starts its
// line go; {%- and -%} cut all, {%+ and +%} nothing. Comments and {% raw %} are handled here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace dovetail::jinja {

struct Token {
  enum Kind : unsigned char { kData, kVariableBegin, kVariableEnd, kBlockBegin, kBlockEnd, kName, kInt, kFloat, kString, kOperator, kEnd };
  Kind kind;
  int line;
  std::string text;  // kString: the characters meant
};

// `source` must be valid UTF-8. The last token is kEnd.
Result<std::vector<Token>> Lex(std::string_view source);

// "line N: parts...", the form of every error of a template.
template <class... Ts>
Status LineError(int line, const Ts&... parts) { return InvalidArgument("line ", line, ": ", parts...); }

}  // namespace dovetail::jinja
