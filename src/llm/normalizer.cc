#include "llm/normalizer.h"

#include "llm/nfc.h"
#include "llm/utf8.h"

namespace dovetail {
namespace {
std::string StripSpaces(std::string_view text, bool left, bool right) {
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const Utf8Char c = ReadUtf8(text, begin);
    if (!IsSpace(c.code)) break;
    begin += c.size;
  }
  while (right && end > begin) {
    size_t start = end - 1;
    while (start > begin && (text[start] & 0xC0) == 0x80) --start;
    if (!IsSpace(ReadUtf8(text, start).code)) break;
    end = start;
  }
  return std::string(text.substr(begin, end - begin));
}
}  // namespace

Result<Regex> ParsePattern(json::Object object, std::string_view key, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const json::Element element, json::Get(object, key, where));
  std::string_view text;
  if (!element.get(text)) return Regex::Literal(text);
  json::Object pattern;
  Result<Regex> regex = Corrupt(where, ": '", key, "' must be a string, {\"String\": ...} or {\"Regex\": ...}");
  if (!element.get(pattern)) {
    if (!pattern["String"].get(text)) {
      regex = Regex::Literal(text);
    } else if (!pattern["Regex"].get(text)) {
      regex = Regex::Compile(text);
    }
  }
  if (!regex.ok()) return std::move(regex).status().While(StrCat("reading ", where));
  return regex;
}

Status Normalizer::ParseInto(json::Object object, const std::string& where, std::vector<Step>* steps) {
  DT_ASSIGN_OR_RETURN(const std::string type, json::GetString(object, "type", where));
  if (type == "Sequence") {
    DT_ASSIGN_OR_RETURN(const json::Array parts, json::GetArray(object, "normalizers", where));
    size_t i = 0;
    for (const json::Element part : parts) {
      const std::string name = StrCat(where, ".normalizers[", i++, "]");
      DT_ASSIGN_OR_RETURN(const json::Object child, json::AsObject(part, name));
      DT_RETURN_IF_ERROR(ParseInto(child, name, steps));
    }
    return OkStatus();
  }
  Step step;
  if (type == "Prepend") {
    step.kind = Kind::kPrepend;
    DT_ASSIGN_OR_RETURN(step.content, json::GetString(object, "prepend", where));
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    DT_ASSIGN_OR_RETURN(step.pattern, ParsePattern(object, "pattern", where));
    DT_ASSIGN_OR_RETURN(step.content, json::GetString(object, "content", where));
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    DT_ASSIGN_OR_RETURN(step.left, json::GetBool(object, "strip_left", true, where));
    DT_ASSIGN_OR_RETURN(step.right, json::GetBool(object, "strip_right", true, where));
  } else if (type == "NFC") {
    step.kind = Kind::kNfc;
  } else {
    return Unsupported(where, ": the normalizer '", type, "' is not supported (Sequence, Prepend, Replace, Strip and NFC are)");
  }
  steps->push_back(std::move(step));
  return OkStatus();
}

Result<Normalizer> Normalizer::Parse(json::Object object, const std::string& where) {
  Normalizer normalizer;
  DT_RETURN_IF_ERROR(ParseInto(object, where, &normalizer.steps_));
  return normalizer;
}

Result<std::string> Normalizer::Apply(std::string text) const {
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kPrepend:
        if (!text.empty()) text.insert(0, step.content);
        break;
      case Kind::kReplace: {
        DT_ASSIGN_OR_RETURN(text, step.pattern.ReplaceAll(text, step.content));
        break;
      }
      case Kind::kStrip: text = StripSpaces(text, step.left, step.right); break;
      case Kind::kNfc: text = ToNfc(text); break;
    }
  }
  return text;
}

}  // namespace dovetail
