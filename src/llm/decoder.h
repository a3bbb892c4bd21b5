// From token ids back to text, one token at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "llm/json.h"
#include "llm/regex.h"
#include "llm/utf8.h"

namespace dovetail {

class Tokenizer;

// The decoder of tokenizer.json as a list of steps that each token passes.
class DecoderSteps {
 public:
  // Takes Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip and Metaspace; anything else, and an order that needs
  // the whole text at once, is Unsupported.
  static Result<DecoderSteps> Parse(json::Object object, const std::string& where);

 private:
  friend class Decoder;
  enum class Kind : unsigned char { kByteLevel, kReplace, kByteFallback, kStrip, kMetaspace, kFusedStrip };
  struct Step {
    Kind kind = Kind::kByteLevel;
    std::string content;
    Regex pattern;
    size_t start = 0, stop = 0;
    bool drop_first = false;  // Metaspace: the first token loses its spaces
  };
  static Status ParseInto(json::Object object, const std::string& where, std::vector<Step>* steps, bool* fused);
  std::vector<Step> steps_;
};

// Decodes one stream of tokens. Borrows the tokenizer. One thread at a time.
class Decoder {
 public:
  // Returns the text that is complete by now, possibly none: a character may need more than one token. Ids that are not
  // in the vocabulary (models pad their logits) and, with skip_special, special tokens give nothing.
  Result<std::string> Push(int64_t id);
  // What is left when no token follows: at most one U+FFFD for an unfinished character.
  std::string Finish() { return assembler_.Finish(); }

 private:
  friend class Tokenizer;
  Decoder(const Tokenizer* tokenizer, const DecoderSteps* steps, bool skip_special)
      : tokenizer_(tokenizer), steps_(steps), skip_special_(skip_special) {}
  const Tokenizer* tokenizer_;
  const DecoderSteps* steps_;  // null: tokens are joined by spaces
  bool skip_special_, first_ = true;
  size_t stripped_ = 0;        // characters that a Strip of the whole text took so far
  bool strip_done_ = false;
  Utf8Assembler assembler_;
};

}  // namespace dovetail
