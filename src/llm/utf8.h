// UTF-8 over byte strings: the tokenizer and the templates work on code points of text that may be hostile.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dovetail {

enum class Utf8State : unsigned char { kValid, kInvalid, kIncomplete };

// One step of reading. kInvalid: `size` bytes (at least 1) can never become a character (the maximal subpart that Unicode
// asks to be replaced by one U+FFFD). kIncomplete: the rest of the text, `size` bytes, is the start of a character.
struct Utf8Char {
  char32_t code;
  size_t size;
  Utf8State state;
};

// `at` must be less than text.size().
Utf8Char ReadUtf8(std::string_view text, size_t at);
void AppendUtf8(char32_t code, std::string* out);
// The number of bytes before the first that is not UTF-8; text.size() for valid text.
size_t ValidUtf8Prefix(std::string_view text);
// Code points of valid text.
size_t CountUtf8(std::string_view text);
// The byte offset of code point `index` of valid text (text.size() past the end).
size_t Utf8Offset(std::string_view text, size_t index);
// Unicode White_Space.
bool IsSpace(char32_t code);

// Turns a stream of bytes into complete characters; bytes that are not UTF-8 become U+FFFD.
class Utf8Assembler {
 public:
  // Returns the characters that are complete by now; an unfinished one waits for the next call.
  std::string Push(std::string_view bytes);
  // What is left: nothing, or one U+FFFD.
  std::string Finish();

 private:
  std::string pending_;
};

}  // namespace dovetail
