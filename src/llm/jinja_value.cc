#include "llm/jinja_value.h"

#include <algorithm>

namespace dovetail::jinja {
namespace {
constexpr uint32_t kMaxDepth = 100;
constexpr uint64_t kMaxWeight = 64 << 20;

// Python takes 1, 1.0 and True for the same key; templates use strings, so a text of the kind and value is enough.
bool KeyOf(const Value& key, std::string* out) {
  int64_t i;
  if (const std::string* s = key.text()) {
    *out = "s" + *s;
  } else if (key.integer(&i)) {
    *out = "i" + std::to_string(i);
  } else if (key.as<double>() != nullptr || key.none()) {
    *out = "r" + Repr(key);
  } else {
    return false;
  }
  return true;
}

template <class Container>
Status CheckSize(const Container& c) {
  if (c.depth > kMaxDepth) return OutOfRange("a value is nested more than ", kMaxDepth, " deep");
  if (c.weight > kMaxWeight) return OutOfRange("a value holds more than ", kMaxWeight, " bytes");
  return OkStatus();
}
}  // namespace

const std::string* Value::text() const {
  const auto* p = as<std::shared_ptr<const std::string>>();
  return p ? p->get() : nullptr;
}
const List* Value::list() const {
  const auto* p = as<std::shared_ptr<const List>>();
  return p ? p->get() : nullptr;
}
const Dict* Value::dict() const {
  const auto* p = as<std::shared_ptr<const Dict>>();
  return p ? p->get() : nullptr;
}

bool Value::integer(int64_t* out) const {
  if (const bool* b = as<bool>()) {
    *out = *b;
    return true;
  }
  if (const int64_t* i = as<int64_t>()) {
    *out = *i;
    return true;
  }
  return false;
}

bool Value::number(double* out) const {
  if (const double* d = as<double>()) {
    *out = *d;
    return true;
  }
  int64_t i;
  if (!integer(&i)) return false;
  *out = static_cast<double>(i);
  return true;
}

bool Value::truthy() const {
  double number_value;
  if (number(&number_value)) return number_value != 0;
  if (const std::string* s = text()) return !s->empty();
  if (const List* l = list()) return !l->items.empty();
  if (const Dict* d = dict()) return !d->items.empty();
  return !undefined() && !none();
}

std::string_view Value::type() const {
  constexpr std::string_view kNames[] = {"undefined", "none", "bool", "int", "float", "string", "list", "dict", "namespace", "loop", "function", "macro"};
  return kNames[data_.index()];
}

uint64_t Value::weight() const {
  if (const std::string* s = text()) return s->size() + 1;
  if (const List* l = list()) return l->weight;
  if (const Dict* d = dict()) return d->weight;
  return 1;
}

uint32_t Value::depth() const {
  if (const List* l = list()) return l->depth;
  if (const Dict* d = dict()) return d->depth;
  return 0;
}

const Value* Dict::Find(const Value& key) const {
  std::string text;
  if (!KeyOf(key, &text)) return nullptr;
  const auto place = index.find(text);
  return place == index.end() ? nullptr : &items[place->second].second;
}

const Value* Dict::Find(std::string_view key) const {
  const auto place = index.find("s" + std::string(key));
  return place == index.end() ? nullptr : &items[place->second].second;
}

Status Dict::Set(const Value& key, Value value) {
  std::string text;
  if (!KeyOf(key, &text)) return InvalidArgument("a ", key.type(), " cannot be the key of a dict");
  weight += key.weight() + value.weight();
  depth = std::max(depth, value.depth() + 1);
  const auto [place, added] = index.emplace(std::move(text), items.size());
  if (added) {
    items.emplace_back(key, std::move(value));
  } else {
    items[place->second].second = std::move(value);
  }
  return OkStatus();
}

Result<Value> MakeList(std::vector<Value> items, bool tuple) {
  List list;
  list.tuple = tuple;
  for (const Value& item : items) {
    list.weight += item.weight();
    list.depth = std::max(list.depth, item.depth() + 1);
  }
  list.items = std::move(items);
  DT_RETURN_IF_ERROR(CheckSize(list));
  return Value(std::make_shared<const List>(std::move(list)));
}

Result<Value> MakeDict(Dict dict) {
  DT_RETURN_IF_ERROR(CheckSize(dict));
  return Value(std::make_shared<const Dict>(std::move(dict)));
}

Result<Value> FromJson(json::Element element) {
  bool b;
  int64_t i;
  double d;
  std::string_view s;
  json::Array array;
  json::Object object;
  if (!element.get(s)) return Value::Text(std::string(s));
  if (!element.get(b)) return Value::Bool(b);
  if (!element.get(i)) return Value::Int(i);
  if (!element.get(d)) return Value::Float(d);
  if (!element.get(array)) {
    std::vector<Value> items;
    for (const json::Element item : array) {
      DT_ASSIGN_OR_RETURN(Value value, FromJson(item));
      items.push_back(std::move(value));
    }
    return MakeList(std::move(items));
  }
  if (!element.get(object)) {
    Dict dict;
    for (const auto& [key, item] : object) {
      DT_ASSIGN_OR_RETURN(Value value, FromJson(item));
      DT_RETURN_IF_ERROR(dict.Set(Value::Text(std::string(key)), std::move(value)));
    }
    return MakeDict(std::move(dict));
  }
  return Value::Nothing();
}

bool Equal(const Value& a, const Value& b) {
  double x, y;
  int64_t i, j;
  if (a.integer(&i) && b.integer(&j)) return i == j;
  if (a.number(&x) && b.number(&y)) return x == y;
  if (a.text() && b.text()) return *a.text() == *b.text();
  if (a.list() && b.list()) {
    return a.list() == b.list() ||
           (a.list()->tuple == b.list()->tuple &&
            std::equal(a.list()->items.begin(), a.list()->items.end(), b.list()->items.begin(), b.list()->items.end(), Equal));
  }
  if (a.dict() && b.dict()) {
    if (a.dict() == b.dict()) return true;
    if (a.dict()->items.size() != b.dict()->items.size()) return false;
    return std::all_of(a.dict()->items.begin(), a.dict()->items.end(), [&](const auto& item) {
      const Value* other = b.dict()->Find(item.first);
      return other != nullptr && Equal(item.second, *other);
    });
  }
  if (const auto* n = a.as<Namespace*>()) return b.as<Namespace*>() && *n == *b.as<Namespace*>();
  return (a.none() && b.none()) || (a.undefined() && b.undefined());
}

Result<int> Compare(const Value& a, const Value& b) {
  const auto sign = [](const auto& x, const auto& y) { return x < y ? -1 : y < x ? 1 : 0; };
  double x, y;
  int64_t i, j;
  if (a.integer(&i) && b.integer(&j)) return sign(i, j);
  if (a.number(&x) && b.number(&y)) return sign(x, y);
  if (a.text() && b.text()) return sign(*a.text(), *b.text());
  if (a.list() && b.list()) {
    const auto &p = a.list()->items, &q = b.list()->items;
    for (size_t k = 0; k < std::min(p.size(), q.size()); ++k) {
      if (!Equal(p[k], q[k])) return Compare(p[k], q[k]);
    }
    return sign(p.size(), q.size());
  }
  return InvalidArgument("a ", a.type(), " and a ", b.type(), " have no order");
}

}  // namespace dovetail::jinja
