#include "llm/jinja_lexer.h"

#include <algorithm>

#include "llm/utf8.h"

namespace dovetail::jinja {
namespace {
bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
int HexDigit(char c) { return IsDigit(c) ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; }

std::string Normalize(std::string_view source) {
  std::string out;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 >= source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (out.ends_with('\n')) out.pop_back();  // a template does not keep its last newline
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(Normalize(source)), in_(source_) {}

  Result<std::vector<Token>> Run() {
    while (at_ < in_.size()) {
      size_t open = at_;
      while (open < in_.size() && !(in_[open] == '{' && open + 1 < in_.size() && (in_[open + 1] == '{' || in_[open + 1] == '%' || in_[open + 1] == '#')))
        ++open;
      if (open >= in_.size()) {
        Data(in_.substr(at_));
        at_ = in_.size();
        break;
      }
      DT_RETURN_IF_ERROR(Tag(open));
    }
    tokens_.push_back({Token::kEnd, line_, {}});
    return std::move(tokens_);
  }

 private:
  void Data(std::string_view text) {
    if (!text.empty()) tokens_.push_back({Token::kData, line_, std::string(text)});
  }
  void Advance(size_t to) {
    line_ += static_cast<int>(std::count(in_.begin() + static_cast<ptrdiff_t>(at_), in_.begin() + static_cast<ptrdiff_t>(to), '\n'));
    at_ = to;
  }
  // The text from at_ to the tag at `open`, cut as the tag wants.
  std::string_view Before(size_t open, bool lstrip) const {
    std::string_view text = in_.substr(at_, open - at_);
    const char sign = open + 2 < in_.size() ? in_[open + 2] : '\0';
    if (sign == '-') {
      while (!text.empty() && IsBlank(text.back())) text.remove_suffix(1);
    } else if (sign != '+' && lstrip) {
      const size_t newline = text.rfind('\n');
      const bool line_starts = at_ == 0 || in_[at_ - 1] == '\n';
      if (newline != std::string_view::npos || line_starts) {
        const size_t start = newline == std::string_view::npos ? 0 : newline + 1;
        if (std::all_of(text.begin() + static_cast<ptrdiff_t>(start), text.end(), IsBlank)) text = text.substr(0, start);
      }
    }
    return text;
  }
  // Moves behind a tag's end: `end` is where its closing sign, - or +, or the bracket itself stands.
  void After(size_t end, bool trim) {
    const char sign = in_[end];
    size_t to = end + (sign == '-' || sign == '+' ? 3 : 2);
    if (sign == '-') {
      while (to < in_.size() && IsBlank(in_[to])) ++to;
    } else if (sign != '+' && trim && to < in_.size() && in_[to] == '\n') {
      ++to;
    }
    Advance(to);
  }
  size_t SkipBlanks(size_t i) const {
    while (i < in_.size() && IsBlank(in_[i])) ++i;
    return i;
  }

  Status Tag(size_t open) {
    const char kind = in_[open + 1];
    Data(Before(open, kind != '{'));
    Advance(open);
    const size_t signs = open + 2 < in_.size() && (in_[open + 2] == '-' || in_[open + 2] == '+') ? 3 : 2;
    if (kind == '#') {
      const size_t close = in_.find("#}", open + 2);
      if (close == std::string_view::npos) return LineError(line_, "a comment {# has no #}");
      const bool sign = close > open + 2 && (in_[close - 1] == '-' || in_[close - 1] == '+');
      After(sign ? close - 1 : close, true);
      return OkStatus();
    }
    if (kind == '%') {
      size_t end;
      if (EndOfNamed("raw", open + signs, &end)) return Raw(end);
    }
    tokens_.push_back({kind == '{' ? Token::kVariableBegin : Token::kBlockBegin, line_, {}});
    Advance(open + signs);
    return Inside(kind == '{' ? '}' : '%');
  }

  // Whether `NAME %}` stands at i; `end` is where its closing sign or bracket stands.
  bool EndOfNamed(std::string_view name, size_t i, size_t* end) const {
    i = SkipBlanks(i);
    if (!in_.substr(i).starts_with(name)) return false;
    i = SkipBlanks(i + name.size());
    *end = i;
    if (i < in_.size() && (in_[i] == '-' || in_[i] == '+')) ++i;
    return in_.substr(i).starts_with("%}");
  }

  Status Raw(size_t end) {
    const int start = line_;
    After(end, true);
    for (size_t open = in_.find("{%", at_); open != std::string_view::npos; open = in_.find("{%", open + 2)) {
      const size_t signs = open + 2 < in_.size() && (in_[open + 2] == '-' || in_[open + 2] == '+') ? 3 : 2;
      size_t close;
      if (!EndOfNamed("endraw", open + signs, &close)) continue;
      Data(Before(open, true));
      Advance(open);
      After(close, true);
      return OkStatus();
    }
    return LineError(start, "{% raw %} has no {% endraw %}");
  }

  Status Inside(char closing) {
    const int start = line_;
    std::vector<char> brackets;
    while (true) {
      Advance(SkipBlanks(at_));
      if (at_ >= in_.size()) return LineError(start, closing == '}' ? "{{ has no }}" : "{% has no %}");
      const char c = in_[at_];
      const size_t bracket = at_ + (c == '-' || c == '+' ? 1 : 0);
      // A } that closes a dict inside {{ }} is not the end.
      if (brackets.empty() && in_.substr(bracket).starts_with(closing == '}' ? "}}" : "%}")) {
        tokens_.push_back({closing == '}' ? Token::kVariableEnd : Token::kBlockEnd, line_, {}});
        After(at_, closing == '%');
        return OkStatus();
      }
      if (c == '"' || c == '\'') {
        DT_RETURN_IF_ERROR(String(c));
      } else if (IsDigit(c)) {
        Number();
      } else if (IsNameStart(c)) {
        size_t end = at_;
        while (end < in_.size() && (IsNameStart(in_[end]) || IsDigit(in_[end]))) ++end;
        Push(Token::kName, end);
      } else {
        DT_RETURN_IF_ERROR(Operator(&brackets));
      }
    }
  }

  void Push(Token::Kind kind, size_t end) {
    tokens_.push_back({kind, line_, std::string(in_.substr(at_, end - at_))});
    Advance(end);
  }

  void Number() {
    size_t end = at_;
    const auto digits = [&] {
      while (end < in_.size() && (IsDigit(in_[end]) || in_[end] == '_')) ++end;
    };
    const auto digit_at = [&](size_t i) { return i < in_.size() && IsDigit(in_[i]); };
    digits();
    bool is_float = false;
    if (end < in_.size() && in_[end] == '.' && digit_at(end + 1)) {
      is_float = true;
      ++end;
      digits();
    }
    if (end < in_.size() && (in_[end] == 'e' || in_[end] == 'E')) {
      const size_t sign = end + 1 < in_.size() && (in_[end + 1] == '+' || in_[end + 1] == '-') ? 2 : 1;
      if (digit_at(end + sign)) {
        is_float = true;
        end += sign;
        digits();
      }
    }
    Push(is_float ? Token::kFloat : Token::kInt, end);
    std::erase(tokens_.back().text, '_');
  }

  Status String(char quote) {
    const int start = line_;
    std::string text;
    size_t i = at_ + 1;
    for (; i < in_.size() && in_[i] != quote; ++i) {
      if (in_[i] != '\\' || i + 1 >= in_.size()) {
        text += in_[i];
        continue;
      }
      const char c = in_[++i];
      constexpr std::string_view kNames = "ntrabfv0\\'\"", kValues = {"\n\t\r\a\b\f\v\0\\'\"", 11};
      if (const size_t place = kNames.find(c); place != std::string_view::npos) {
        text += kValues[place];
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        char32_t code = 0;
        for (size_t k = 1; k <= n; ++k) {
          const int digit = i + k < in_.size() ? HexDigit(in_[i + k]) : -1;
          if (digit < 0) return LineError(start, "the string has an incomplete \\", c, " escape");
          code = code * 16 + static_cast<char32_t>(digit);
        }
        AppendUtf8(code, &text);
        i += n;
      } else if (c != '\n') {
        text += '\\';
        text += c;
      }
    }
    if (i >= in_.size()) return LineError(start, "a string has no closing ", quote);
    tokens_.push_back({Token::kString, start, std::move(text)});
    Advance(i + 1);
    return OkStatus();
  }

  Status Operator(std::vector<char>* brackets) {
    constexpr std::string_view kTwo[] = {"==", "!=", "<=", ">=", "//", "**"};
    constexpr std::string_view kOne = "+-*/%~<>=()[]{},.:|";
    for (const std::string_view op : kTwo) {
      if (in_.substr(at_).starts_with(op)) {
        Push(Token::kOperator, at_ + 2);
        return OkStatus();
      }
    }
    const char c = in_[at_];
    if (kOne.find(c) == std::string_view::npos) {
      return LineError(line_, "the character '", in_.substr(at_, ReadUtf8(in_, at_).size), "' has no meaning here");
    }
    if (c == '(' || c == '[' || c == '{') brackets->push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (brackets->empty() || brackets->back() != c) return LineError(line_, "'", c, "' closes nothing");
      brackets->pop_back();
    }
    Push(Token::kOperator, at_ + 1);
    return OkStatus();
  }

  std::string source_;
  std::string_view in_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};
}  // namespace

Result<std::vector<Token>> Lex(std::string_view source) { return Lexer(source).Run(); }

}  // namespace dovetail::jinja
