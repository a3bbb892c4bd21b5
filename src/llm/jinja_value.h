// Values of the template language: what Python's objects are to Jinja.
//
// Containers are immutable and know their depth and weight (bytes of text and number of values held, shared parts counted
// each time), which bounds every walk over them. Namespaces and loops belong to one rendering, which outlives its values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "llm/bpe.h"
#include "llm/json.h"

namespace dovetail::jinja {

class Value;
struct List;
struct Dict;
struct Namespace;
struct LoopState;
struct Stmt;

struct Undefined {
  std::shared_ptr<const std::string> name;  // what was looked for; may be null
};
struct None {};
enum class Builtin : unsigned char { kRange, kNamespace, kDict, kRaiseException };
struct Macro {
  const Stmt* definition;
};

class Value {
 public:
  using Data = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const std::string>, std::shared_ptr<const List>,
                            std::shared_ptr<const Dict>, Namespace*, LoopState*, Builtin, Macro>;
  Value() = default;  // undefined
  Value(Data data) : data_(std::move(data)) {}  // NOLINT: implicit by design
  static Value Missing(std::string_view name) { return Data(Undefined{std::make_shared<const std::string>(name)}); }
  static Value Nothing() { return Data(None{}); }
  static Value Bool(bool b) { return Data(b); }
  static Value Int(int64_t i) { return Data(i); }
  static Value Float(double d) { return Data(d); }
  static Value Text(std::string s) { return Data(std::make_shared<const std::string>(std::move(s))); }

  template <class T>
  const T* as() const { return std::get_if<T>(&data_); }
  bool undefined() const { return as<Undefined>() != nullptr; }
  bool none() const { return as<None>() != nullptr; }
  const std::string* text() const;  // null for other kinds, as below
  const List* list() const;
  const Dict* dict() const;
  // True of ints and bools.
  bool integer(int64_t* out) const;
  // Of ints, bools and floats.
  bool number(double* out) const;

  bool truthy() const;
  // "string", "list"... for messages.
  std::string_view type() const;
  uint64_t weight() const;
  uint32_t depth() const;

 private:
  Data data_;
};

struct List {
  std::vector<Value> items;
  bool tuple = false;  // is written with round brackets, and equals no list
  uint64_t weight = 1;
  uint32_t depth = 1;
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in order of insertion
  StringMap<size_t> index;
  uint64_t weight = 1;
  uint32_t depth = 1;
  // Null when there is no such key.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  // Replaces the value of a key that is there. The key must be a string, a number, a bool or none.
  Status Set(const Value& key, Value value);
};

struct Namespace {
  StringMap<Value> members;
};

struct LoopState {
  std::shared_ptr<const List> items;
  size_t index = 0;
};

// Fails when the container would be too deep or too heavy.
Result<Value> MakeList(std::vector<Value> items, bool tuple = false);
Result<Value> MakeDict(Dict dict);
Result<Value> FromJson(json::Element element);

// Python's str() and repr().
std::string ToString(const Value& value);
std::string Repr(const Value& value);
// Python's json.dumps(ensure_ascii=False); indent < 0: on one line.
Status ToJson(const Value& value, int64_t indent, std::string* out);

bool Equal(const Value& a, const Value& b);
// -1, 0, 1; fails for kinds that have no order.
Result<int> Compare(const Value& a, const Value& b);

}  // namespace dovetail::jinja
