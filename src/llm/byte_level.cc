#include "llm/byte_level.h"

#include <array>

#include "llm/utf8.h"

namespace dovetail {
namespace {
// Printable bytes of Latin-1 stand for themselves; the other 68, in order, for U+0100 and up.
struct Alphabet {
  std::array<char32_t, 256> letter{};
  std::array<int, 256 + 68> byte{};
};

constexpr Alphabet MakeAlphabet() {
  Alphabet a;
  a.byte.fill(-1);
  char32_t next = 256;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    a.letter[b] = printable ? static_cast<char32_t>(b) : next++;
    a.byte[a.letter[b]] = b;
  }
  return a;
}
constexpr Alphabet kAlphabet = MakeAlphabet();
}  // namespace

std::string BytesToLetters(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char b : bytes) AppendUtf8(kAlphabet.letter[static_cast<unsigned char>(b)], &out);
  return out;
}

std::optional<std::string> LettersToBytes(std::string_view letters) {
  std::string out;
  for (size_t at = 0; at < letters.size();) {
    const Utf8Char c = ReadUtf8(letters, at);
    if (c.code >= kAlphabet.byte.size() || kAlphabet.byte[c.code] < 0) return std::nullopt;
    out.push_back(static_cast<char>(kAlphabet.byte[c.code]));
    at += c.size;
  }
  return out;
}

}  // namespace dovetail
