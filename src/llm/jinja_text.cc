#include "llm/jinja_text.h"

#include <algorithm>

#include "llm/utf8.h"

namespace dovetail::jinja {
namespace {
constexpr size_t kMaxText = 64 << 20;
char UpperChar(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
char LowerChar(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
bool IsCased(char c) { return LowerChar(c) != UpperChar(c); }
bool IsPythonSpace(char32_t c) { return IsSpace(c) || (c >= 0x1C && c <= 0x1F); }
size_t LastCharacter(std::string_view s) {
  size_t at = s.size() - 1;
  while (at > 0 && (s[at] & 0xC0) == 0x80) --at;
  return at;
}
}  // namespace

std::string Upper(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(), UpperChar);
  return out;
}

std::string Lower(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(), LowerChar);
  return out;
}

std::string Capitalize(std::string_view s) {
  std::string out = Lower(s);
  if (!out.empty()) out[0] = UpperChar(out[0]);
  return out;
}

std::string Title(std::string_view s) {
  std::string out = Lower(s);
  bool start = true;
  for (char& c : out) {
    if (start) c = UpperChar(c);
    start = !IsCased(c) && (c & 0x80) == 0;
  }
  return out;
}

std::string Strip(std::string_view s, bool left, bool right, std::optional<std::string_view> chars) {
  const auto strips = [&](size_t at) {
    const Utf8Char c = ReadUtf8(s, at);
    return chars ? chars->find(s.substr(at, c.size)) != std::string_view::npos : IsPythonSpace(c.code);
  };
  while (left && !s.empty() && strips(0)) s.remove_prefix(ReadUtf8(s, 0).size);
  while (right && !s.empty() && strips(LastCharacter(s))) s = s.substr(0, LastCharacter(s));
  return std::string(s);
}

Result<std::string> Replace(std::string_view s, std::string_view from, std::string_view to, int64_t count) {
  std::string out;
  size_t at = 0;
  while (count != 0 && at <= s.size()) {
    size_t place, next;
    if (from.empty()) {  // Python puts `to` before every character and at the end
      place = at;
      next = at < s.size() ? at + ReadUtf8(s, at).size : at + 1;
      out += to;
      if (at < s.size()) out += s.substr(at, next - at);
    } else {
      place = s.find(from, at);
      if (place == std::string_view::npos) break;
      out += s.substr(at, place - at);
      out += to;
      next = place + from.size();
    }
    at = next;
    if (count > 0) --count;
    if (out.size() > kMaxText) return OutOfRange("replace() makes a string that is too long");
  }
  if (at < s.size()) out += s.substr(at);
  return out;
}

std::vector<std::string> SplitSpace(std::string_view s, int64_t most) {
  std::vector<std::string> out;
  while (true) {
    while (!s.empty() && IsPythonSpace(ReadUtf8(s, 0).code)) s.remove_prefix(ReadUtf8(s, 0).size);
    if (s.empty()) return out;
    if (most >= 0 && static_cast<int64_t>(out.size()) >= most) {
      out.emplace_back(s);
      return out;
    }
    size_t end = 0;
    while (end < s.size() && !IsPythonSpace(ReadUtf8(s, end).code)) end += ReadUtf8(s, end).size;
    out.emplace_back(s.substr(0, end));
    s.remove_prefix(end);
  }
}

std::vector<std::string> SplitOn(std::string_view s, std::string_view separator, int64_t most, bool from_right) {
  std::vector<std::string> out;
  while (most < 0 || static_cast<int64_t>(out.size()) < most) {
    const size_t place = from_right ? s.rfind(separator) : s.find(separator);
    if (place == std::string_view::npos) break;
    if (from_right) {
      out.emplace_back(s.substr(place + separator.size()));
      s = s.substr(0, place);
    } else {
      out.emplace_back(s.substr(0, place));
      s.remove_prefix(place + separator.size());
    }
  }
  out.emplace_back(s);
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string> SplitLines(std::string_view s) {
  std::vector<std::string> out;
  while (!s.empty()) {
    const size_t end = std::min(s.find_first_of("\n\r\v\f"), s.size());
    out.emplace_back(s.substr(0, end));
    s.remove_prefix(std::min(s.size(), end + (s.substr(end).starts_with("\r\n") ? 2 : 1)));
  }
  return out;
}

}  // namespace dovetail::jinja
