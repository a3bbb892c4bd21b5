// The added tokens of tokenizer.json: texts such as <|im_start|> that are one token wherever they stand.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "llm/bpe.h"

namespace dovetail {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool single_word = false;     // only where no letter, digit or _ touches it
  bool lstrip = false;          // takes the spaces before it along
  bool rstrip = false;          // and after it
  bool normalized = true;       // is looked for after normalization, as its normalized text
  bool special = false;         // left out of decoded text on demand
};

// Finds a set of texts, leftmost and longest first.
class TokenFinder {
 public:
  struct Found {
    size_t begin, end;
    const AddedToken* token;  // null: plain text
  };
  // `token` must outlive the finder; an empty text is ignored.
  void Add(std::string text, const AddedToken* token);
  // Splits all of `text` (valid UTF-8), in order.
  std::vector<Found> Split(std::string_view text) const;

 private:
  struct Entry {
    std::string text;
    const AddedToken* token;
  };
  std::array<std::vector<Entry>, 256> by_first_byte_;  // longest first
};

}  // namespace dovetail
