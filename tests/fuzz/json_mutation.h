// Mutations of a JSON text that mostly leave it JSON: a value becomes another value of the text or an extreme one, is removed or doubled.
#pragma once

#include <cctype>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <string_view>
#include <vector>

namespace dovetail::fuzz {

struct JsonValue {
  size_t begin = 0, end = 0;  // [begin, end) of the text
  size_t item = 0;            // where `"key": value` begins, in an array begin
};

// Every value of the text but the outermost; fewer for a text that is not JSON.
inline std::vector<JsonValue> JsonValues(const std::vector<uint8_t>& text) {
  std::vector<JsonValue> values;
  std::vector<size_t> open;  // indices in `values` of the containers around
  size_t key = SIZE_MAX;     // where the key before the value begins
  for (size_t at = 0; at < text.size();) {
    const uint8_t c = text[at];
    if (c == '}' || c == ']') {
      if (open.empty()) break;
      values[open.back()].end = ++at;
      open.pop_back();
      continue;
    }
    if (c == ',' || c == ':' || std::isspace(c)) {
      ++at;
      continue;
    }
    const size_t begin = at;
    if (c == '{' || c == '[') {
      open.push_back(values.size());
      values.push_back({begin, text.size(), key == SIZE_MAX ? begin : key});
      key = SIZE_MAX;
      ++at;
      continue;
    }
    if (c == '"') {
      for (++at; at < text.size() && text[at] != '"'; ++at)
        if (text[at] == '\\') ++at;
      ++at;
    } else {
      while (at < text.size() && std::string_view(",:]} \n").find(static_cast<char>(text[at])) == std::string_view::npos) ++at;
    }
    if (at > text.size()) break;
    size_t next = at;
    while (next < text.size() && std::isspace(text[next])) ++next;
    if (c == '"' && next < text.size() && text[next] == ':') {
      key = begin;
      at = next + 1;
      continue;
    }
    values.push_back({begin, at, key == SIZE_MAX ? begin : key});
    key = SIZE_MAX;
  }
  if (!values.empty()) values.erase(values.begin());
  return values;
}

// One change. A text without values stays as it is.
template <class Random>
void MutateJson(std::vector<uint8_t>& text, Random& random) {
  static constexpr std::string_view kExtremes[] = {"null", "true", "false", "0", "1", "-1", "2", "7", "64", "2147483647", "9223372036854775807",
                                                   "-9223372036854775808", "18446744073709551616", "4294967296", "1e400", "0.5", "\"\"", "\"s0\"",
                                                   "\"u0\"", "\"NaN\"", "\"Infinity\"", "[]", "{}", "[0]", "[-1, 5]", "[[]]"};
  const std::vector<JsonValue> values = JsonValues(text);
  if (values.empty()) return;
  const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  const auto slice = [&](size_t begin, size_t end) { return std::vector<uint8_t>(text.begin() + begin, text.begin() + end); };
  const JsonValue v = values[below(values.size())];
  const auto replace = [&](const auto& with) {
    text.erase(text.begin() + v.begin, text.begin() + v.end);
    text.insert(text.begin() + v.begin, with.begin(), with.end());
  };
  switch (below(8)) {
    case 0:
    case 1: replace(kExtremes[below(std::size(kExtremes))]); break;
    case 2:
    case 3:
    case 4: {  // another value that begins alike: a string for a string, a number for a number
      std::vector<JsonValue> alike;
      for (const JsonValue& w : values)
        if (text[w.begin] == text[v.begin] || (std::isdigit(text[w.begin]) && std::isdigit(text[v.begin]))) alike.push_back(w);
      const JsonValue w = alike[below(alike.size())];
      replace(slice(w.begin, w.end));
      break;
    }
    case 5: {
      const JsonValue w = values[below(values.size())];
      replace(slice(w.begin, w.end));
      break;
    }
    case 6: {  // with the comma after it, or before it
      size_t begin = v.item, end = v.end;
      if (end < text.size() && text[end] == ',') ++end;
      else while (begin > 0 && (std::isspace(text[begin - 1]) || text[begin - 1] == ',')) --begin;
      text.erase(text.begin() + begin, text.begin() + end);
      break;
    }
    default: {
      std::vector<uint8_t> copy = slice(v.item, v.end);
      copy.push_back(',');
      text.insert(text.begin() + v.item, copy.begin(), copy.end());
    }
  }
}

}  // namespace dovetail::fuzz
