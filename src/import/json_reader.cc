#include "import/json_reader.h"

#include <cmath>
#include <limits>

namespace dovetail::pt2 {
namespace {

std::string_view TypeName(JsonElement e) {
  switch (e.type()) {
    case simdjson::dom::element_type::ARRAY: return "a list";
    case simdjson::dom::element_type::OBJECT: return "an object";
    case simdjson::dom::element_type::STRING: return "a string";
    case simdjson::dom::element_type::BOOL: return "a bool";
    case simdjson::dom::element_type::NULL_VALUE: return "null";
    default: return "a number";
  }
}

template <class T>
Result<T> As(JsonElement element, std::string_view where, std::string_view kind) {
  T value;
  if (element.get(value)) return Corrupt(where, " is ", TypeName(element), ", not ", kind);
  return value;
}

std::string Field(std::string_view where, std::string_view key) { return StrCat("'", key, "' of ", where); }

}  // namespace

Status ParseJson(std::span<const std::byte> text, std::string_view name, JsonDocument* document) {
  // The parser wants readable bytes after the text, so it copies it.
  const auto error = document->parser.parse(reinterpret_cast<const char*>(text.data()), text.size(), true).get(document->root);
  if (error) return Corrupt(name, " is not valid JSON: ", simdjson::error_message(error));
  return OkStatus();
}

Result<JsonObject> AsObject(JsonElement e, std::string_view where) { return As<JsonObject>(e, where, "an object"); }
Result<JsonArray> AsArray(JsonElement e, std::string_view where) { return As<JsonArray>(e, where, "a list"); }
Result<std::string_view> AsString(JsonElement e, std::string_view where) { return As<std::string_view>(e, where, "a string"); }
Result<int64_t> AsInt(JsonElement e, std::string_view where) { return As<int64_t>(e, where, "an integer"); }
Result<bool> AsBool(JsonElement e, std::string_view where) { return As<bool>(e, where, "a bool"); }
Result<double> AsDouble(JsonElement e, std::string_view where) {
  std::string_view text;
  if (!e.get(text)) {
    if (text == "Infinity") return std::numeric_limits<double>::infinity();
    if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
    if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  }
  return As<double>(e, where, "a number");
}

bool Has(JsonObject object, std::string_view key) {
  JsonElement e;
  return !object.at_key(key).get(e) && !e.is_null();
}

Result<JsonElement> Get(JsonObject object, std::string_view key, std::string_view where) {
  JsonElement e;
  if (object.at_key(key).get(e)) return Corrupt(where, " has no '", key, "'");
  return e;
}
Result<JsonObject> GetObject(JsonObject object, std::string_view key, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const JsonElement e, Get(object, key, where));
  return AsObject(e, Field(where, key));
}
Result<JsonArray> GetArray(JsonObject object, std::string_view key, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const JsonElement e, Get(object, key, where));
  return AsArray(e, Field(where, key));
}
Result<std::string_view> GetString(JsonObject object, std::string_view key, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const JsonElement e, Get(object, key, where));
  return AsString(e, Field(where, key));
}
Result<int64_t> GetInt(JsonObject object, std::string_view key, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const JsonElement e, Get(object, key, where));
  return AsInt(e, Field(where, key));
}
Result<std::string_view> GetString(JsonObject object, std::string_view key, std::string_view where, std::string_view otherwise) {
  if (!Has(object, key)) return otherwise;
  return GetString(object, key, where);
}
Result<bool> GetBool(JsonObject object, std::string_view key, std::string_view where, bool otherwise) {
  if (!Has(object, key)) return otherwise;
  DT_ASSIGN_OR_RETURN(const JsonElement e, Get(object, key, where));
  return AsBool(e, Field(where, key));
}

Result<JsonUnion> AsUnion(JsonElement element, std::string_view where) {
  DT_ASSIGN_OR_RETURN(const JsonObject object, AsObject(element, where));
  auto it = object.begin();
  if (it == object.end()) return Corrupt(where, " is an empty object");
  const JsonUnion u{it.key(), it.value()};
  if (++it != object.end()) return Corrupt(where, " has several keys, where one names what it holds");
  return u;
}

}  // namespace dovetail::pt2
