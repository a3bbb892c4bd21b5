// The alphabet of byte-level BPE: each of the 256 bytes is written as one printable character, so that tokens are text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dovetail {

// Each byte of `bytes` as its character.
std::string BytesToLetters(std::string_view bytes);
// The way back; nothing when a character of `letters` (valid UTF-8) stands for no byte.
std::optional<std::string> LettersToBytes(std::string_view letters);

}  // namespace dovetail
