// The algorithm of the Unicode Standard, section 3.11: decompose, put marks into the order of their classes, compose.
#include "llm/nfc.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "llm/utf8.h"

namespace dovetail {
namespace {
struct Decomposition {
  char32_t code, first, second;  // second is 0 for a single character
  bool composes;
};
struct ClassRun {
  char32_t first, last;
  unsigned char value;
};
#define P(c, a, b) Decomposition{c, a, b, true},
#define X(c, a, b) Decomposition{c, a, b, false},
#define S(c, a) Decomposition{c, a, 0, false},
#define C(a, b, k)
constexpr Decomposition kDecompositions[] = {
#include "llm/nfc.inc"
};
#undef P
#undef X
#undef S
#undef C
#define P(c, a, b)
#define X(c, a, b)
#define S(c, a)
#define C(a, b, k) ClassRun{a, b, k},
constexpr ClassRun kClasses[] = {
#include "llm/nfc.inc"
};
#undef P
#undef X
#undef S
#undef C

constexpr char32_t kHangul = 0xAC00, kLead = 0x1100, kVowel = 0x1161, kTail = 0x11A7;
constexpr char32_t kLeads = 19, kVowels = 21, kTails = 28, kSyllables = kLeads * kVowels * kTails;

unsigned char ClassOf(char32_t code) {
  const auto* run = std::upper_bound(std::begin(kClasses), std::end(kClasses), code, [](char32_t c, const ClassRun& r) { return c < r.first; });
  return run != std::begin(kClasses) && code <= run[-1].last ? run[-1].value : 0;
}

void Decompose(char32_t code, std::u32string* out) {
  if (code >= kHangul && code < kHangul + kSyllables) {
    const char32_t index = code - kHangul;
    out->push_back(kLead + index / (kVowels * kTails));
    out->push_back(kVowel + index % (kVowels * kTails) / kTails);
    if (index % kTails != 0) out->push_back(kTail + index % kTails);
    return;
  }
  const auto* d = std::lower_bound(std::begin(kDecompositions), std::end(kDecompositions), code,
                                   [](const Decomposition& x, char32_t c) { return x.code < c; });
  if (d == std::end(kDecompositions) || d->code != code) {
    out->push_back(code);
    return;
  }
  Decompose(d->first, out);
  if (d->second != 0) Decompose(d->second, out);
}

// 0 when the two do not compose.
char32_t Compose(char32_t a, char32_t b) {
  if (a >= kLead && a < kLead + kLeads && b >= kVowel && b < kVowel + kVowels) {
    return kHangul + ((a - kLead) * kVowels + (b - kVowel)) * kTails;
  }
  if (a >= kHangul && a < kHangul + kSyllables && (a - kHangul) % kTails == 0 && b > kTail && b < kTail + kTails) return a + (b - kTail);
  static const std::vector<Decomposition> by_pair = [] {
    std::vector<Decomposition> pairs;
    std::copy_if(std::begin(kDecompositions), std::end(kDecompositions), std::back_inserter(pairs), [](auto& d) { return d.composes; });
    std::sort(pairs.begin(), pairs.end(), [](auto& x, auto& y) { return std::pair(x.first, x.second) < std::pair(y.first, y.second); });
    return pairs;
  }();
  const auto place = std::lower_bound(by_pair.begin(), by_pair.end(), std::pair(a, b),
                                      [](auto& x, const auto& key) { return std::pair(x.first, x.second) < key; });
  return place != by_pair.end() && place->first == a && place->second == b ? place->code : 0;
}
}  // namespace

std::string ToNfc(std::string_view text) {
  // Nothing below U+0300 ever changes.
  if (std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xCC; })) return std::string(text);
  std::u32string codes;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = ReadUtf8(text, at);
    Decompose(c.code, &codes);
    at += c.size;
  }
  for (size_t i = 0; i < codes.size();) {
    size_t end = i;
    while (end < codes.size() && ClassOf(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + i, codes.begin() + end, [](char32_t a, char32_t b) { return ClassOf(a) < ClassOf(b); });
    i = end + 1;
  }
  std::u32string out;
  size_t starter = std::u32string::npos;
  unsigned char last = 0;  // the class of the character before, when it is not the starter itself
  for (const char32_t code : codes) {
    const unsigned char value = ClassOf(code);
    const bool adjacent = starter != std::u32string::npos && starter + 1 == out.size();
    if (starter != std::u32string::npos && (adjacent || (last != 0 && last < value))) {
      if (const char32_t composed = Compose(out[starter], code)) {
        out[starter] = composed;
        continue;
      }
    }
    if (value == 0) starter = out.size();
    last = value;
    out.push_back(code);
  }
  std::string result;
  for (const char32_t code : out) AppendUtf8(code, &result);
  return result;
}

}  // namespace dovetail
