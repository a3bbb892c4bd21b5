// Reading the JSON files of an archive: every getter names the field that is missing or of the wrong kind.
#pragma once

#include <simdjson.h>

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"

namespace dovetail::pt2 {

using JsonArray = simdjson::dom::array;
using JsonElement = simdjson::dom::element;
using JsonObject = simdjson::dom::object;

// A parsed document; elements and strings of it borrow from it.
struct JsonDocument {
  simdjson::dom::parser parser;
  JsonElement root;
};
// `name` is used in messages only. torch writes NaN and infinities as strings, so the text is standard JSON.
Status ParseJson(std::span<const std::byte> text, std::string_view name, JsonDocument* document);

// `where` says in messages what `object` is.
Result<JsonObject> AsObject(JsonElement element, std::string_view where);
Result<JsonArray> AsArray(JsonElement element, std::string_view where);
Result<std::string_view> AsString(JsonElement element, std::string_view where);
Result<int64_t> AsInt(JsonElement element, std::string_view where);
Result<bool> AsBool(JsonElement element, std::string_view where);
// A number, or one of the strings "Infinity", "-Infinity" and "NaN".
Result<double> AsDouble(JsonElement element, std::string_view where);

Result<JsonElement> Get(JsonObject object, std::string_view key, std::string_view where);
Result<JsonObject> GetObject(JsonObject object, std::string_view key, std::string_view where);
Result<JsonArray> GetArray(JsonObject object, std::string_view key, std::string_view where);
Result<std::string_view> GetString(JsonObject object, std::string_view key, std::string_view where);
Result<int64_t> GetInt(JsonObject object, std::string_view key, std::string_view where);
// A missing key and null give `otherwise`.
Result<std::string_view> GetString(JsonObject object, std::string_view key, std::string_view where, std::string_view otherwise);
Result<bool> GetBool(JsonObject object, std::string_view key, std::string_view where, bool otherwise);
// False for a missing key and for null.
bool Has(JsonObject object, std::string_view key);

// The file's unions are objects with one key that names the alternative.
struct JsonUnion {
  std::string_view tag;
  JsonElement value;
};
Result<JsonUnion> AsUnion(JsonElement element, std::string_view where);

}  // namespace dovetail::pt2
