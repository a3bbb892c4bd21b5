// Ruby's regular expression syntax, as Oniguruma reads it, to PCRE2's.
#include "llm/regex.h"

namespace dovetail {
namespace {
constexpr std::string_view kWord = "\\p{L}\\p{M}\\p{Nd}\\p{Pc}";
// PCRE2's \s also takes U+180E, which Unicode no longer counts as a space.
constexpr std::string_view kSpace = "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kHex = "0-9a-fA-F";

bool IsHex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool IsQuantifier(std::string_view s) {  // {n} {n,} {,m} {n,m}
  size_t digits = 0;
  for (size_t i = 1; i < s.size(); ++i) {
    if (s[i] == '}') return digits > 0;
    if (s[i] >= '0' && s[i] <= '9') {
      ++digits;
    } else if (s[i] != ',') {
      return false;
    }
  }
  return false;
}

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  Result<std::string> Run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        atom_ = out_.size();
        Escape(false);
      } else if (c == '[') {
        atom_ = out_.size();
        DT_RETURN_IF_ERROR(Class());
      } else if (c == '(') {
        groups_.push_back(out_.size());
        Group();
      } else if (c == ')') {
        out_ += in_[at_++];
        atom_ = groups_.empty() ? out_.size() - 1 : groups_.back();
        if (!groups_.empty()) groups_.pop_back();
      } else if (c == '{' && IsQuantifier(in_.substr(at_))) {
        Quantifier();
      } else if (c == '*' || c == '+' || c == '?') {
        out_ += in_[at_++];
      } else {
        if ((c & 0xC0) != 0x80) atom_ = out_.size();
        out_ += in_[at_++];
      }
    }
    return std::move(out_);
  }

 private:
  void Quantifier() {
    const size_t end = in_.find('}', at_) + 1;
    if (in_[at_ + 1] == ',') {  // {,m}: PCRE2 10.42 reads it as text
      out_ += "{0";
      ++at_;
    }
    out_ += in_.substr(at_, end - at_);
    at_ = end;
    if (at_ < in_.size() && in_[at_] == '+') {  // repeats the whole in Ruby, is possessive in PCRE2
      out_.insert(atom_, "(?:");
      out_ += ")+";
      ++at_;
    }
  }

  void Group() {
    out_ += in_[at_++];
    if (at_ >= in_.size() || in_[at_] != '?') return;
    size_t end = at_ + 1;
    while (end < in_.size() && (in_[end] == 'i' || in_[end] == 'm' || in_[end] == 'x' || in_[end] == '-')) ++end;
    if (end >= in_.size() || (in_[end] != ':' && in_[end] != ')')) return;
    for (; at_ < end; ++at_) out_ += in_[at_] == 'm' ? 's' : in_[at_];  // Ruby's m lets . match a newline
  }

  void Escape(bool in_class) {
    const char next = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    const auto set = [&](std::string_view members, bool negated) {
      if (in_class) {
        out_ += members;
      } else {
        out_ += negated ? "[^" : "[";
        out_ += members;
        out_ += ']';
      }
      at_ += 2;
    };
    if (next == 'w') return set(kWord, false);
    if (next == 's') return set(kSpace, false);
    if (next == 'h') return set(kHex, false);
    if (!in_class && next == 'W') return set(kWord, true);
    if (!in_class && next == 'S') return set(kSpace, true);
    if (!in_class && next == 'H') return set(kHex, true);
    if (next == 'u' && at_ + 6 <= in_.size() && IsHex(in_[at_ + 2]) && IsHex(in_[at_ + 3]) && IsHex(in_[at_ + 4]) &&
        IsHex(in_[at_ + 5])) {
      out_ += StrCat("\\x{", in_.substr(at_ + 2, 4), "}");
      at_ += 6;
      return;
    }
    out_ += in_.substr(at_, 2);
    at_ += 2;
    if ((next == 'p' || next == 'P' || next == 'x') && at_ < in_.size() && in_[at_] == '{') {
      const size_t end = in_.find('}', at_);
      if (end == std::string_view::npos) return;  // PCRE2 reports it
      out_ += in_.substr(at_, end + 1 - at_);
      at_ = end + 1;
    }
  }

  Status Class() {
    out_ += in_[at_++];
    if (at_ < in_.size() && in_[at_] == '^') out_ += in_[at_++];
    bool first = true;
    while (at_ < in_.size() && (in_[at_] != ']' || first)) {
      first = false;
      if (in_[at_] == '\\') {
        Escape(true);
      } else if (in_.substr(at_, 2) == "&&" || (in_[at_] == '[' && in_.substr(at_, 2) != "[:")) {
        return Unsupported("the regular expression '", in_, "' has a set inside a set ([...[...]...] or &&) at byte ", at_,
                           ": write it with lookaheads instead");
      } else if (in_.substr(at_, 2) == "[:") {
        const size_t end = in_.find(":]", at_);
        if (end == std::string_view::npos) return Unsupported("the regular expression '", in_, "' has an unclosed [: at byte ", at_);
        out_ += in_.substr(at_, end + 2 - at_);
        at_ = end + 2;
      } else {
        out_ += in_[at_++];
      }
    }
    if (at_ < in_.size()) out_ += in_[at_++];
    return OkStatus();
  }

  std::string_view in_;
  size_t at_ = 0, atom_ = 0;
  std::vector<size_t> groups_;
  std::string out_;
};
}  // namespace

Result<std::string> TranslateRubyRegex(std::string_view pattern) { return Translator(pattern).Run(); }

}  // namespace dovetail
