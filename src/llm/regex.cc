#include "llm/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "llm/utf8.h"

namespace dovetail {
namespace {
constexpr size_t kMaxPattern = 64 << 10;
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kMaxReplaced = 64 << 20;

template <auto F>
struct Deleter {
  template <class T>
  void operator()(T* p) const { F(p); }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;

std::string PcreMessage(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}
}  // namespace

void Regex::Free::operator()(void* code) const { pcre2_code_free(static_cast<pcre2_code*>(code)); }

Result<Regex> Regex::Build(std::string_view pattern, uint32_t options) {
  if (pattern.size() > kMaxPattern) return Unsupported("a regular expression of ", pattern.size(), " bytes; the most is ", kMaxPattern);
  CompileContext context(pcre2_compile_context_create(nullptr));
  if (!context) return Internal("no memory for a regular expression");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error, &offset, context.get());
  if (code == nullptr) {
    return Unsupported("the regular expression '", pattern, "' is not one that PCRE2 reads: ", PcreMessage(error), " at byte ", offset);
  }
  Regex regex;
  regex.code_.reset(code);
  regex.source_ = pattern;
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where it fails, the interpreter runs
  return regex;
}

Result<Regex> Regex::Compile(std::string_view pattern) {
  DT_ASSIGN_OR_RETURN(std::string translated, TranslateRubyRegex(pattern));
  // In Ruby's syntax ^ and $ always match at lines. \C would split characters.
  return Build(translated, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
}

Result<Regex> Regex::Literal(std::string_view text) {
  if (text.empty()) return Regex();
  return Build(text, PCRE2_UTF | PCRE2_LITERAL);
}

Result<std::vector<Regex::Match>> Regex::FindAll(std::string_view text) const {
  std::vector<Match> matches;
  if (!code_ || text.empty()) return matches;
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  MatchData data(pcre2_match_data_create_from_pattern(code, nullptr));
  MatchContext context(pcre2_match_context_create(nullptr));
  if (!data || !context) return Internal("no memory for a regular expression");
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  size_t at = 0, last_end = 0;
  bool any = false;
  while (at <= text.size()) {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int found = pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK, data.get(), context.get());
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(), context.get());
    }
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return Unsupported("the regular expression '", source_, "' failed on a text of ", text.size(), " bytes: ", PcreMessage(found));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
    const Match match{ends[0], ends[1]};
    if (match.end < match.begin || match.begin < last_end) {  // \K inside a lookaround can do this
      return Unsupported("the regular expression '", source_, "' matches backwards");
    }
    const bool repeated = match.begin == match.end && any && match.end == last_end;
    if (!repeated) matches.push_back(match);
    any = true;
    last_end = at = match.end;
    if (match.begin == match.end) at += at < text.size() ? ReadUtf8(text, at).size : 1;
  }
  return matches;
}

Result<std::string> Regex::ReplaceAll(std::string_view text, std::string_view content) const {
  DT_ASSIGN_OR_RETURN(const std::vector<Match> matches, FindAll(text));
  std::string out;
  size_t at = 0;
  for (const Match& m : matches) {
    if (out.size() > kMaxReplaced) return Unsupported("replacing '", source_, "' makes more than ", kMaxReplaced, " bytes of text");
    out += text.substr(at, m.begin - at);
    out += content;
    at = m.end;
  }
  out += text.substr(at);
  return out;
}

}  // namespace dovetail
