// The loop of text generation: prefill the prompt in chunks, then one token at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "llm/sampler.h"
#include "llm/tokenizer.h"

namespace dovetail {

// A model that keeps what it has read (its KV cache or other state) between calls. The loop knows nothing else of it.
class LanguageModel {
 public:
  virtual ~LanguageModel() = default;
  // Reads `tokens`, 1 to max_chunk() of them, the first at `first_position`; sets *logits to those after the last token.
  // They stay valid until the next call.
  virtual Status Forward(std::span<const int64_t> tokens, int64_t first_position, std::span<const float>* logits) = 0;
  // The most tokens of one call, at least 1.
  virtual int64_t max_chunk() const = 0;
  // The number of positions that the model can hold; 0: without bound.
  virtual int64_t context_length() const = 0;
};

struct GenerateOptions {
  int64_t max_tokens = 256;
  SamplerOptions sampler = {};
  std::vector<int64_t> stop_tokens = {};  // they end the text and are not part of it
  bool skip_special = true;          // leaves special tokens out of the text
  int64_t first_position = 0;        // of the prompt: more than 0 continues a conversation that the model holds
  // Gets each piece of text when it is complete; returning false ends the text. May be empty.
  std::function<bool(std::string_view)> on_text = {};
};

enum class StopReason : unsigned char { kStopToken, kMaxTokens, kContextFull, kCaller };

struct GenerateResult {
  std::string text;
  std::vector<int64_t> tokens;  // without the stop token
  StopReason reason = StopReason::kMaxTokens;
  // The first position that the model has not read: a following turn continues here. A token sampled last is not read,
  // nor is a stop token.
  int64_t next_position = 0;
  int64_t prompt_tokens = 0;
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;  // of the calls with one token after the prompt; 0 when there were none
  double first_token_seconds = 0;  // from the start until the first token was chosen
};

// `prompt` holds at least one token. Fails, before the model is called, when the prompt does not fit its context.
Result<GenerateResult> Generate(LanguageModel& model, const Tokenizer& tokenizer, std::span<const int64_t> prompt, const GenerateOptions& options);

}  // namespace dovetail
