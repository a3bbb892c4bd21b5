// Reading tokenizer files with simdjson: every getter names the field that is missing or of the wrong kind.
#pragma once

#include <simdjson.h>

#include <string>
#include <string_view>

#include "base/status.h"

namespace dovetail::json {

using Array = simdjson::dom::array;
using Element = simdjson::dom::element;
using Object = simdjson::dom::object;

// A parsed document; elements of it borrow from it.
struct Document {
  simdjson::dom::parser parser;
  Element root;
};
// `name` is used in messages only.
Status Parse(std::string_view text, std::string_view name, Document* document);

// `where` is the path of the object in messages, such as "tokenizer.json: model".
Result<Object> AsObject(Element element, std::string_view where);
Result<Element> Get(Object object, std::string_view key, std::string_view where);
Result<Object> GetObject(Object object, std::string_view key, std::string_view where);
Result<Array> GetArray(Object object, std::string_view key, std::string_view where);
Result<std::string> GetString(Object object, std::string_view key, std::string_view where);
Result<int64_t> GetInt(Object object, std::string_view key, std::string_view where);
// A missing key or null gives `otherwise`.
Result<bool> GetBool(Object object, std::string_view key, bool otherwise, std::string_view where);
Result<std::string> GetString(Object object, std::string_view key, std::string_view otherwise, std::string_view where);
// False for a missing key and for null.
bool Has(Object object, std::string_view key);

}  // namespace dovetail::json
