#include "llm/json.h"

namespace dovetail::json {
namespace {
Status Wrong(std::string_view where, std::string_view key, std::string_view kind) {
  return Corrupt(where, ": '", key, "' must be ", kind);
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// simdjson refuses integers past 64 bits, such as the 10^30 that stands for "no limit" in many a tokenizer_config.json. As floats
// (".0" behind them) it takes them.
std::string LongIntegersAsFloats(std::string_view text) {
  constexpr size_t kSafeDigits = 18;
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    if (in_string || !IsDigit(text[i])) {
      if (in_string && text[i] == '\\' && i + 1 < text.size()) out += text[i++];
      else if (text[i] == '"') in_string = !in_string;
      out += text[i++];
      continue;
    }
    size_t end = i;
    bool integer = true;
    while (end < text.size() && (IsDigit(text[end]) || std::string_view(".eE+-").find(text[end]) != std::string_view::npos)) integer &= IsDigit(text[end++]);
    out += text.substr(i, end - i);
    if (integer && end - i > kSafeDigits) out += ".0";
    i = end;
  }
  return out;
}

}  // namespace

Status Parse(std::string_view text, std::string_view name, Document* document) {
  auto error = document->parser.parse(text.data(), text.size()).get(document->root);
  if (error == simdjson::NUMBER_ERROR) error = document->parser.parse(LongIntegersAsFloats(text)).get(document->root);
  if (error) {
    return Corrupt(name, " is not JSON: ", simdjson::error_message(error));
  }
  return OkStatus();
}

Result<Object> AsObject(Element element, std::string_view where) {
  Object object;
  if (element.get(object)) return Corrupt(where, " must be an object");
  return object;
}

Result<Element> Get(Object object, std::string_view key, std::string_view where) {
  Element element;
  if (object[key].get(element)) return Corrupt(where, ": '", key, "' is missing");
  return element;
}

Result<Object> GetObject(Object object, std::string_view key, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const Element element, Get(object, key, where));
  Object value;
  if (element.get(value)) return Wrong(where, key, "an object");
  return value;
}

Result<Array> GetArray(Object object, std::string_view key, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const Element element, Get(object, key, where));
  Array value;
  if (element.get(value)) return Wrong(where, key, "an array");
  return value;
}

Result<std::string> GetString(Object object, std::string_view key, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const Element element, Get(object, key, where));
  std::string_view value;
  if (element.get(value)) return Wrong(where, key, "a string");
  return std::string(value);
}

Result<int64_t> GetInt(Object object, std::string_view key, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const Element element, Get(object, key, where));
  int64_t value;
  if (element.get(value)) return Wrong(where, key, "an integer");
  return value;
}

Result<bool> GetBool(Object object, std::string_view key, bool otherwise, std::string_view where) {
  if (!Has(object, key)) return otherwise;
  bool value;
  if (object[key].get(value)) return Wrong(where, key, "true or false");
  return value;
}

Result<std::string> GetString(Object object, std::string_view key, std::string_view otherwise, std::string_view where) {
  if (!Has(object, key)) return std::string(otherwise);
  return GetString(object, key, where);
}

bool Has(Object object, std::string_view key) {
  Element element;
  return !object[key].get(element) && !element.is_null();
}

}  // namespace dovetail::json
