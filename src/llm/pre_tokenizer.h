// The pre-tokenizers of tokenizer.json: they split text into the words that the BPE model sees one by one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "llm/json.h"
#include "llm/regex.h"

namespace dovetail {

// A stretch of text between added tokens. `at_start`: it begins where the user's text begins.
struct Piece {
  std::string text;
  bool at_start;
};

class PreTokenizer {
 public:
  // Takes Sequence, ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit and Metaspace; anything else is
  // Unsupported.
  static Result<PreTokenizer> Parse(json::Object object, const std::string& where);
  // Splits every piece (valid UTF-8); no piece comes out empty.
  Result<std::vector<Piece>> Apply(std::vector<Piece> pieces) const;

  // What becomes of the parts that a pattern matches.
  enum class Behavior : unsigned char { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  static Result<std::vector<std::string_view>> Split(const Regex& pattern, Behavior behavior, bool invert, std::string_view text);

 private:
  enum class Kind : unsigned char { kSplit, kByteLevel, kMetaspace };
  enum class Prefix : unsigned char { kNever, kFirst, kAlways };
  struct Step {
    Kind kind = Kind::kSplit;
    bool split = true;
    Regex pattern;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
    Prefix prefix = Prefix::kNever;
    std::string replacement;
  };
  static Status ParseInto(json::Object object, const std::string& where, std::vector<Step>* steps);
  static Status ParseStep(json::Object object, const std::string& type, const std::string& where, Step* step);
  static Status ApplyStep(const Step& step, Piece piece, std::vector<Piece>* out);
  std::vector<Step> steps_;
};

}  // namespace dovetail
