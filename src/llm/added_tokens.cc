#include "llm/added_tokens.h"

#include <algorithm>

#include "llm/regex.h"
#include "llm/utf8.h"

namespace dovetail {
namespace {
size_t LastChar(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (text[at] & 0xC0) == 0x80) --at;
  return at;
}

// Whether the one character `text` is part of a word.
bool IsWord(std::string_view text) {
  static const Result<Regex> word = Regex::Compile("\\w");
  if (!word.ok()) return false;
  const auto found = word->FindAll(text);
  return found.ok() && !found->empty();
}
bool EndsWithWord(std::string_view text) { return !text.empty() && IsWord(text.substr(LastChar(text))); }
bool StartsWithWord(std::string_view text) { return !text.empty() && IsWord(text.substr(0, ReadUtf8(text, 0).size)); }
}  // namespace

void TokenFinder::Add(std::string text, const AddedToken* token) {
  if (text.empty()) return;
  auto& bucket = by_first_byte_[static_cast<unsigned char>(text[0])];
  const auto place = std::upper_bound(bucket.begin(), bucket.end(), text.size(), [](size_t n, const Entry& e) { return n > e.text.size(); });
  bucket.insert(place, Entry{std::move(text), token});
}

std::vector<TokenFinder::Found> TokenFinder::Split(std::string_view text) const {
  std::vector<Found> found;
  size_t done = 0;  // everything before is in `found`
  for (size_t at = 0; at < text.size();) {
    const auto& bucket = by_first_byte_[static_cast<unsigned char>(text[at])];
    const auto entry = std::find_if(bucket.begin(), bucket.end(), [&](const Entry& e) { return text.substr(at).starts_with(e.text); });
    if (entry == bucket.end()) {
      ++at;
      continue;
    }
    const AddedToken& token = *entry->token;
    size_t begin = at, end = at + entry->text.size();
    at = end;
    if (token.single_word && (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) continue;
    if (token.lstrip) {
      while (begin > done) {
        const size_t before = LastChar(text.substr(0, begin));
        if (!IsSpace(ReadUtf8(text, before).code)) break;
        begin = before;
      }
    }
    if (token.rstrip) {
      while (end < text.size()) {
        const Utf8Char c = ReadUtf8(text, end);
        if (!IsSpace(c.code)) break;
        end += c.size;
      }
    }
    // Spaces that the token before took are not looked at again, even by a token that starts with them.
    begin = std::max(begin, done);
    end = std::max(end, begin);
    if (begin > done) found.push_back({done, begin, nullptr});
    found.push_back({begin, end, &token});
    done = end;
  }
  if (done < text.size()) found.push_back({done, text.size(), nullptr});
  return found;
}

}  // namespace dovetail
