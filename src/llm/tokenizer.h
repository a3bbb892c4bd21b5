// Text to token ids and back, as a Hugging Face tokenizer.json says.
//
// Covers byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM...) and BPE over characters with byte fallback (Llama 2, Gemma...):
// the model "BPE" with the parts that normalizer.h, pre_tokenizer.h and decoder.h name, and the post-processors
// TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing and Sequence. Whatever a file needs beyond these is an
// error that names the component. "truncation" and "padding" of the file are not applied.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "llm/added_tokens.h"
#include "llm/bpe.h"
#include "llm/decoder.h"
#include "llm/json.h"
#include "llm/normalizer.h"
#include "llm/pre_tokenizer.h"

namespace dovetail {

// One thread at a time: words are cached.
class Tokenizer {
 public:
  // `path`: a tokenizer.json (of any name) or a folder that holds one.
  static Result<std::unique_ptr<Tokenizer>> Load(const std::string& path);
  // `name` stands for the file in messages.
  static Result<std::unique_ptr<Tokenizer>> Parse(std::string_view json, const std::string& name);
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // The ids of `text`. Added tokens such as <|im_start|> inside it are recognized. add_special_tokens adds what the
  // post-processor puts around a text (the start token); a text made by a chat template holds it already.
  // Fails when `text` is not UTF-8.
  Result<std::vector<int64_t>> Encode(std::string_view text, bool add_special_tokens);
  // The text of all ids at once; see Decoder for what ids give nothing.
  Result<std::string> Decode(std::span<const int64_t> ids, bool skip_special) const;
  // A fresh stream. The tokenizer must outlive it.
  Decoder NewDecoder(bool skip_special) const { return Decoder(this, decoder_ ? &*decoder_ : nullptr, skip_special); }

  std::optional<int64_t> TokenId(std::string_view token) const;
  // Null for an id that is not in the vocabulary.
  const std::string* Token(int64_t id) const;
  bool IsSpecial(int64_t id) const;
  // One more than the largest id.
  int64_t vocab_size() const { return max_id_ + 1; }

 private:
  Tokenizer() = default;
  Status ParseModel(json::Object root, const std::string& name);
  Status ParseAdded(json::Object root, const std::string& name);
  Status ParsePostProcessor(json::Object object, const std::string& where);
  Status EncodePlain(std::string text, bool at_start, std::vector<int64_t>* ids);

  BpeModel model_;
  std::optional<Normalizer> normalizer_;
  std::optional<PreTokenizer> pre_tokenizer_;
  std::optional<DecoderSteps> decoder_;
  std::deque<AddedToken> added_;  // a deque: the finders point into it
  StringMap<const AddedToken*> added_by_text_;
  std::unordered_map<int64_t, const AddedToken*> added_by_id_;
  TokenFinder raw_finder_, normalized_finder_;
  std::vector<int64_t> prefix_, suffix_;  // of the post-processor
  int64_t max_id_ = -1;
};

}  // namespace dovetail
