// Regular expressions of tokenizer.json, matched by PCRE2 over Unicode.
//
// The files are written for Oniguruma with Ruby's syntax. Compile rewrites what PCRE2 reads differently (\w \s \h \uXXXX,
// X{n,m}+, (?m:...)); set operations inside [...] are Unsupported. A pattern is hostile: matching is bounded, and one that
// backtracks without end gives an error instead of a hang.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace dovetail {

// Immutable after Compile; FindAll may be called from several threads.
class Regex {
 public:
  struct Match {
    size_t begin, end;  // bytes
  };

  static Result<Regex> Compile(std::string_view pattern);
  // Matches exactly `text`; an empty text matches nowhere.
  static Result<Regex> Literal(std::string_view text);

  // All matches from left to right, without overlap; empty ones are included. `text` must be valid UTF-8.
  Result<std::vector<Match>> FindAll(std::string_view text) const;
  // `text` with every match replaced by `content`, taken as it is.
  Result<std::string> ReplaceAll(std::string_view text, std::string_view content) const;

 private:
  struct Free {
    void operator()(void* code) const;
  };
  static Result<Regex> Build(std::string_view pattern, uint32_t options);
  std::unique_ptr<void, Free> code_;  // null: matches nowhere
  std::string source_;
};

// `pattern` in PCRE2's syntax. For Compile and its tests.
Result<std::string> TranslateRubyRegex(std::string_view pattern);

}  // namespace dovetail
