// The normalizers of tokenizer.json: what is done to text before it is split into words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "llm/json.h"
#include "llm/regex.h"

namespace dovetail {

// Reads a pattern of tokenizer.json: {"String": s}, {"Regex": s} or a string.
Result<Regex> ParsePattern(json::Object object, std::string_view key, std::string_view where);

class Normalizer {
 public:
  // Takes Sequence, Prepend, Replace, Strip and NFC; anything else is Unsupported.
  static Result<Normalizer> Parse(json::Object object, const std::string& where);
  // `text` must be valid UTF-8.
  Result<std::string> Apply(std::string text) const;

 private:
  enum class Kind : unsigned char { kPrepend, kReplace, kStrip, kNfc };
  struct Step {
    Kind kind;
    std::string content;
    Regex pattern;
    bool left = true, right = true;
  };
  static Status ParseInto(json::Object object, const std::string& where, std::vector<Step>* steps);
  std::vector<Step> steps_;
};

}  // namespace dovetail
