#include "llm/utf8.h"

#include <algorithm>

namespace dovetail {
namespace {
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Lead {
  size_t size;
  unsigned char low, high;  // the range of the second byte: it excludes overlong forms, surrogates and > U+10FFFF
};

Lead LeadOf(unsigned char b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b < 0xF4) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}
}  // namespace

Utf8Char ReadUtf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  const Lead lead = LeadOf(first);
  if (lead.size == 0) return {0xFFFD, 1, Utf8State::kInvalid};
  if (lead.size == 1) return {first, 1, Utf8State::kValid};
  char32_t code = first & (0x7F >> lead.size);
  for (size_t i = 1; i < lead.size; ++i) {
    if (at + i >= text.size()) return {0xFFFD, i, Utf8State::kIncomplete};
    const unsigned char low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (byte(i) < low || byte(i) > high) return {0xFFFD, i, Utf8State::kInvalid};
    code = (code << 6) | (byte(i) & 0x3F);
  }
  return {code, lead.size, Utf8State::kValid};
}

void AppendUtf8(char32_t code, std::string* out) {
  const auto put = [&](char32_t b) { out->push_back(static_cast<char>(b)); };
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) code = 0xFFFD;
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char c = ReadUtf8(text, at);
    if (c.state != Utf8State::kValid) break;
    at += c.size;
  }
  return at;
}

size_t CountUtf8(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

size_t Utf8Offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((text[at] & 0xC0) == 0x80) continue;
    if (index == 0) return at;
    --index;
  }
  return text.size();
}

bool IsSpace(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string Utf8Assembler::Push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Char c = ReadUtf8(pending_, at);
    if (c.state == Utf8State::kIncomplete) break;
    if (c.state == Utf8State::kValid) {
      out.append(pending_, at, c.size);
    } else {
      out += kReplacement;
    }
    at += c.size;
  }
  pending_.erase(0, at);
  return out;
}

std::string Utf8Assembler::Finish() {
  std::string out(pending_.empty() ? std::string_view() : kReplacement);
  pending_.clear();
  return out;
}

}  // namespace dovetail
