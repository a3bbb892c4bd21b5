#include "llm/generate.h"

#include <algorithm>
#include <chrono>

namespace dovetail {
namespace {
using Clock = std::chrono::steady_clock;
double Since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }
double Rate(size_t count, double seconds) { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }

Status CheckPrompt(const LanguageModel& model, std::span<const int64_t> prompt, const GenerateOptions& options) {
  if (prompt.empty()) return InvalidArgument("the prompt has no tokens: give at least one character");
  if (options.max_tokens < 0 || options.first_position < 0) return InvalidArgument("max_tokens and first_position must not be negative");
  if (model.max_chunk() < 1) return InvalidArgument("the model takes no token in one call");
  const int64_t context = model.context_length();
  if (context == 0) return OkStatus();
  const int64_t free = std::max<int64_t>(context - options.first_position, 0);
  if (static_cast<int64_t>(prompt.size()) <= free) return OkStatus();
  return OutOfRange("the prompt has ", prompt.size(), " tokens, but the model's cache has room for ", free,
                    options.first_position > 0 ? StrCat(" more (it holds ", context, ", and ", options.first_position, " are used)") : std::string(),
                    ": shorten the prompt", options.first_position > 0 ? ", start a new conversation" : "",
                    " or export the model with a longer cache");
}
}  // namespace

Result<GenerateResult> Generate(LanguageModel& model, const Tokenizer& tokenizer, std::span<const int64_t> prompt, const GenerateOptions& options) {
  DT_RETURN_IF_ERROR(CheckPrompt(model, prompt, options));
  DT_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(options.sampler));
  GenerateResult result;
  result.prompt_tokens = static_cast<int64_t>(prompt.size());

  const auto start = Clock::now();
  int64_t position = options.first_position;
  std::span<const float> logits;
  for (std::span<const int64_t> rest = prompt; !rest.empty();) {
    const size_t n = std::min(rest.size(), static_cast<size_t>(model.max_chunk()));
    Status status = model.Forward(rest.first(n), position, &logits);
    if (!status.ok()) return std::move(status).While(StrCat("prefilling positions ", position, " to ", position + static_cast<int64_t>(n) - 1));
    position += static_cast<int64_t>(n);
    rest = rest.subspan(n);
  }
  result.prefill_tokens_per_s = Rate(prompt.size(), Since(start));

  Decoder decoder = tokenizer.NewDecoder(options.skip_special);
  const auto emit = [&](const std::string& piece) {
    result.text += piece;
    return piece.empty() || !options.on_text || options.on_text(piece);
  };
  size_t decoded = 0;
  double decode_seconds = 0;
  while (static_cast<int64_t>(result.tokens.size()) < options.max_tokens) {
    if (!result.tokens.empty()) {
      if (model.context_length() > 0 && position >= model.context_length()) {
        result.reason = StopReason::kContextFull;
        break;
      }
      const auto call = Clock::now();
      Status status = model.Forward({&result.tokens.back(), 1}, position, &logits);
      if (!status.ok()) return std::move(status).While(StrCat("generating at position ", position));
      decode_seconds += Since(call);
      ++decoded;
      ++position;
    }
    DT_ASSIGN_OR_RETURN(const int64_t token, sampler.Pick(logits));
    if (result.first_token_seconds == 0) result.first_token_seconds = Since(start);
    if (std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) != options.stop_tokens.end()) {
      result.reason = StopReason::kStopToken;
      break;
    }
    result.tokens.push_back(token);
    DT_ASSIGN_OR_RETURN(const std::string piece, decoder.Push(token));
    if (!emit(piece)) {
      result.reason = StopReason::kCaller;
      break;
    }
  }
  (void)emit(decoder.Finish());
  result.decode_tokens_per_s = Rate(decoded, decode_seconds);
  result.next_position = position;
  return result;
}

}  // namespace dovetail
