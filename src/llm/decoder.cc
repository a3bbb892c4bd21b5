#include "llm/decoder.h"

#include "llm/bpe.h"
#include "llm/byte_level.h"
#include "llm/normalizer.h"
#include "llm/tokenizer.h"

namespace dovetail {
namespace {
size_t CountPrefix(std::string_view text, std::string_view content, size_t most) {
  size_t count = 0;
  while (count < most && !content.empty() && text.starts_with(content)) {
    text.remove_prefix(content.size());
    ++count;
  }
  return count;
}

void StripToken(std::string_view content, size_t start, size_t stop, std::string* text) {
  text->erase(0, content.size() * CountPrefix(*text, content, start));
  for (; stop > 0 && !content.empty() && text->ends_with(content); --stop) text->resize(text->size() - content.size());
}
}  // namespace

Status DecoderSteps::ParseInto(json::Object object, const std::string& where, std::vector<Step>* steps, bool* fused) {
  DT_ASSIGN_OR_RETURN(const std::string type, json::GetString(object, "type", where));
  if (type == "Sequence") {
    DT_ASSIGN_OR_RETURN(const json::Array parts, json::GetArray(object, "decoders", where));
    size_t i = 0;
    for (const json::Element part : parts) {
      const std::string name = StrCat(where, ".decoders[", i++, "]");
      DT_ASSIGN_OR_RETURN(const json::Object child, json::AsObject(part, name));
      DT_RETURN_IF_ERROR(ParseInto(child, name, steps, fused));
    }
    return OkStatus();
  }
  if (type == "Fuse") {
    *fused = true;
    return OkStatus();
  }
  Step step;
  if (*fused && type != "Strip") {
    return Unsupported(where, ": the decoder '", type, "' after the tokens are joined is not supported: text could not be streamed");
  }
  if (type == "ByteLevel") {
    *fused = true;
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    DT_ASSIGN_OR_RETURN(step.pattern, ParsePattern(object, "pattern", where));
    DT_ASSIGN_OR_RETURN(step.content, json::GetString(object, "content", where));
  } else if (type == "Strip") {
    step.kind = *fused ? Kind::kFusedStrip : Kind::kStrip;
    DT_ASSIGN_OR_RETURN(step.content, json::GetString(object, "content", where));
    DT_ASSIGN_OR_RETURN(const int64_t start, json::GetInt(object, "start", where));
    DT_ASSIGN_OR_RETURN(const int64_t stop, json::GetInt(object, "stop", where));
    if (start < 0 || stop < 0) return Corrupt(where, ": 'start' and 'stop' must not be negative");
    if (*fused && stop > 0) return Unsupported(where, ": a Strip at the end of the whole text is not supported: text could not be streamed");
    step.start = static_cast<size_t>(start);
    step.stop = static_cast<size_t>(stop);
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    DT_ASSIGN_OR_RETURN(const std::string replacement, json::GetString(object, "replacement", "\xE2\x96\x81", where));
    DT_ASSIGN_OR_RETURN(step.pattern, Regex::Literal(replacement));
    step.content = " ";
    DT_ASSIGN_OR_RETURN(const bool prefix, json::GetBool(object, "add_prefix_space", true, where));
    DT_ASSIGN_OR_RETURN(const std::string scheme, json::GetString(object, "prepend_scheme", prefix ? "always" : "never", where));
    step.drop_first = scheme != "never";
  } else {
    return Unsupported(where, ": the decoder '", type,
                       "' is not supported (Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip and Metaspace are)");
  }
  steps->push_back(std::move(step));
  return OkStatus();
}

Result<DecoderSteps> DecoderSteps::Parse(json::Object object, const std::string& where) {
  DecoderSteps steps;
  bool fused = false;
  DT_RETURN_IF_ERROR(ParseInto(object, where, &steps.steps_, &fused));
  return steps;
}

Result<std::string> Decoder::Push(int64_t id) {
  const std::string* token = tokenizer_->Token(id);
  if (token == nullptr || (skip_special_ && tokenizer_->IsSpecial(id))) return std::string();
  const bool first = first_;
  first_ = false;
  if (steps_ == nullptr) return assembler_.Push(first ? *token : StrCat(" ", *token));
  std::string text = *token;
  for (const DecoderSteps::Step& step : steps_->steps_) {
    switch (step.kind) {
      case DecoderSteps::Kind::kByteLevel:
        if (ValidUtf8Prefix(text) != text.size()) break;
        if (auto bytes = LettersToBytes(text)) text = std::move(*bytes);
        break;
      case DecoderSteps::Kind::kByteFallback:
        if (const auto byte = TokenByte(text)) text.assign(1, static_cast<char>(*byte));
        break;
      case DecoderSteps::Kind::kMetaspace:
      case DecoderSteps::Kind::kReplace: {
        if (ValidUtf8Prefix(text) != text.size()) break;  // a byte that ByteFallback made
        const bool drop = first && step.drop_first;
        DT_ASSIGN_OR_RETURN(text, step.pattern.ReplaceAll(text, drop ? std::string_view() : std::string_view(step.content)));
        break;
      }
      case DecoderSteps::Kind::kStrip: StripToken(step.content, step.start, step.stop, &text); break;
      case DecoderSteps::Kind::kFusedStrip: {
        if (strip_done_ || text.empty()) break;
        const size_t count = CountPrefix(text, step.content, step.start - stripped_);
        text.erase(0, count * step.content.size());
        stripped_ += count;
        strip_done_ = !text.empty() || stripped_ == step.start;
        break;
      }
    }
  }
  return assembler_.Push(text);
}

}  // namespace dovetail
