// Methods of strings, lists and dicts.
#include <algorithm>
#include <span>

#include "llm/jinja_eval.h"
#include "llm/jinja_text.h"
#include "llm/utf8.h"

namespace dovetail::jinja {
namespace {
using Method = Result<Value> (*)(Evaluator&, const Value&, const Args&);
struct Row {
  std::string_view name;
  Method method;
};

Result<Value> Texts(Evaluator& e, std::vector<std::string> parts) {
  DT_RETURN_IF_ERROR(e.Charge(parts.size() * sizeof(Value)));
  std::vector<Value> items;
  for (std::string& part : parts) items.push_back(Value::Text(std::move(part)));
  return MakeList(std::move(items));
}

template <bool kLeft, bool kRight>
Result<Value> StripMethod(Evaluator&, const Value& self, const Args& args) {
  const Value* chars = args.Find(0, "chars");
  if (chars == nullptr || chars->none()) return Value::Text(Strip(*self.text(), kLeft, kRight, std::nullopt));
  if (!chars->text()) return InvalidArgument("strip() takes a string");
  return Value::Text(Strip(*self.text(), kLeft, kRight, *chars->text()));
}

template <bool kFromRight>
Result<Value> SplitMethod(Evaluator& e, const Value& self, const Args& args) {
  DT_ASSIGN_OR_RETURN(const int64_t most, args.Int(1, "maxsplit", -1));
  const Value* separator = args.Find(0, "sep");
  if (separator == nullptr || separator->none()) {
    if (kFromRight && most >= 0) return Unsupported("rsplit() with maxsplit needs a separator here");
    return Texts(e, SplitSpace(*self.text(), most));
  }
  if (!separator->text() || separator->text()->empty()) return InvalidArgument("split() takes a string that is not empty");
  return Texts(e, SplitOn(*self.text(), *separator->text(), most, kFromRight));
}

template <bool kAtEnd>
Result<Value> AffixMethod(Evaluator&, const Value& self, const Args& args) {
  const Value* affix = args.Find(0, "prefix");
  const auto matches = [&](const Value& v) { return v.text() && (kAtEnd ? self.text()->ends_with(*v.text()) : self.text()->starts_with(*v.text())); };
  if (affix && affix->list()) return Value::Bool(std::any_of(affix->list()->items.begin(), affix->list()->items.end(), matches));
  if (!affix || !affix->text()) return InvalidArgument(kAtEnd ? "endswith" : "startswith", "() takes a string");
  return Value::Bool(matches(*affix));
}

template <bool kSuffix>
Result<Value> RemoveMethod(Evaluator&, const Value& self, const Args& args) {
  DT_ASSIGN_OR_RETURN(const std::string affix, args.Text(0, "affix", ""));
  std::string_view s = *self.text();
  if (kSuffix && s.ends_with(affix)) s.remove_suffix(affix.size());
  if (!kSuffix && s.starts_with(affix)) s.remove_prefix(affix.size());
  return Value::Text(std::string(s));
}

template <bool kLast>
Result<Value> FindMethod(Evaluator&, const Value& self, const Args& args) {
  DT_ASSIGN_OR_RETURN(const std::string part, args.Text(0, "sub", ""));
  const std::string& s = *self.text();
  const size_t place = kLast ? s.rfind(part) : s.find(part);
  if (place == std::string::npos) return Value::Int(-1);
  return Value::Int(static_cast<int64_t>(CountUtf8(std::string_view(s).substr(0, place))));
}

template <std::string (*F)(std::string_view)>
Result<Value> TextMethod(Evaluator&, const Value& self, const Args&) { return Value::Text(F(*self.text())); }

template <bool (*F)(char)>
Result<Value> AllMethod(Evaluator&, const Value& self, const Args&) {
  return Value::Bool(!self.text()->empty() && std::all_of(self.text()->begin(), self.text()->end(), F));
}
bool Digit(char c) { return c >= '0' && c <= '9'; }
bool Letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c & 0x80) != 0; }
bool LetterOrDigit(char c) { return Digit(c) || Letter(c); }
bool Blank(char c) { return c == ' ' || (c >= 9 && c <= 13); }

template <bool kUpper>
Result<Value> CaseMethod(Evaluator&, const Value& self, const Args&) {
  const std::string& s = *self.text();
  return Value::Bool(s == (kUpper ? Upper(s) : Lower(s)) && Upper(s) != Lower(s));
}

Result<Value> ReplaceMethod(Evaluator&, const Value& self, const Args& args) {
  DT_ASSIGN_OR_RETURN(const std::string from, args.Text(0, "old", ""));
  DT_ASSIGN_OR_RETURN(const std::string to, args.Text(1, "new", ""));
  DT_ASSIGN_OR_RETURN(const int64_t count, args.Int(2, "count", -1));
  DT_ASSIGN_OR_RETURN(std::string out, Replace(*self.text(), from, to, count));
  return Value::Text(std::move(out));
}

Result<Value> JoinMethod(Evaluator& e, const Value& self, const Args& args) {
  if (args.positional.empty()) return InvalidArgument("join() takes a list");
  return e.ApplyFilter("join", args.positional[0], Args{{self}, {}});
}

Result<Value> CountMethod(Evaluator&, const Value& self, const Args& args) {
  if (args.positional.empty()) return InvalidArgument("count() takes one argument");
  const Value& part = args.positional[0];
  if (const List* l = self.list()) return Value::Int(std::count_if(l->items.begin(), l->items.end(), [&](const Value& v) { return Equal(v, part); }));
  if (!part.text() || part.text()->empty()) return InvalidArgument("count() takes a string that is not empty");
  return Value::Int(static_cast<int64_t>(SplitOn(*self.text(), *part.text(), -1, false).size()) - 1);
}

Result<Value> LinesMethod(Evaluator& e, const Value& self, const Args&) { return Texts(e, SplitLines(*self.text())); }

constexpr Row kTextMethods[] = {
    {"strip", StripMethod<true, true>}, {"lstrip", StripMethod<true, false>}, {"rstrip", StripMethod<false, true>},
    {"split", SplitMethod<false>}, {"rsplit", SplitMethod<true>}, {"splitlines", LinesMethod},
    {"startswith", AffixMethod<false>}, {"endswith", AffixMethod<true>},
    {"removeprefix", RemoveMethod<false>}, {"removesuffix", RemoveMethod<true>},
    {"find", FindMethod<false>}, {"rfind", FindMethod<true>}, {"count", CountMethod},
    {"replace", ReplaceMethod}, {"join", JoinMethod},
    {"upper", TextMethod<Upper>}, {"lower", TextMethod<Lower>}, {"capitalize", TextMethod<Capitalize>}, {"title", TextMethod<Title>},
    {"isdigit", AllMethod<Digit>}, {"isnumeric", AllMethod<Digit>}, {"isalpha", AllMethod<Letter>}, {"isalnum", AllMethod<LetterOrDigit>},
    {"isspace", AllMethod<Blank>}, {"isupper", CaseMethod<true>}, {"islower", CaseMethod<false>},
};

Result<Value> IndexMethod(Evaluator&, const Value& self, const Args& args) {
  const auto& items = self.list()->items;
  for (size_t i = 0; !args.positional.empty() && i < items.size(); ++i) {
    if (Equal(items[i], args.positional[0])) return Value::Int(static_cast<int64_t>(i));
  }
  return InvalidArgument("index(): the list does not hold the value");
}

Result<Value> CopyMethod(Evaluator&, const Value& self, const Args&) { return self; }

template <bool kAtKey, bool kAtValue>
Result<Value> ItemsMethod(Evaluator& e, const Value& self, const Args&) {
  std::vector<Value> out;
  DT_RETURN_IF_ERROR(e.Charge(self.dict()->items.size() * sizeof(List)));
  for (const auto& [key, value] : self.dict()->items) {
    if (kAtKey && kAtValue) {
      DT_ASSIGN_OR_RETURN(Value pair, MakeList({key, value}, true));
      out.push_back(std::move(pair));
    } else {
      out.push_back(kAtKey ? key : value);
    }
  }
  return MakeList(std::move(out));
}

Result<Value> GetMethod(Evaluator&, const Value& self, const Args& args) {
  if (args.positional.empty()) return InvalidArgument("get() takes a key");
  if (const Value* found = self.dict()->Find(args.positional[0])) return *found;
  const Value* otherwise = args.Find(1, "default");
  return otherwise ? *otherwise : Value::Nothing();
}

constexpr Row kListMethods[] = {{"index", IndexMethod}, {"count", CountMethod}, {"copy", CopyMethod}};
constexpr Row kDictMethods[] = {
    {"items", ItemsMethod<true, true>}, {"keys", ItemsMethod<true, false>}, {"values", ItemsMethod<false, true>},
    {"get", GetMethod}, {"copy", CopyMethod},
};
}  // namespace

Result<Value> CallMethod(Evaluator& e, const Value& self, std::string_view name, const Args& args) {
  const std::span<const Row> rows = self.text() ? std::span<const Row>(kTextMethods) : self.list() ? std::span<const Row>(kListMethods) : kDictMethods;
  for (const Row& row : rows) {
    if (row.name == name) return row.method(e, self, args);
  }
  if (self.list() && (name == "append" || name == "extend" || name == "pop" || name == "insert")) {
    return Unsupported("lists cannot be changed by '", name, "': use + and a namespace");
  }
  return Unsupported("a ", self.type(), " has no method '", name, "' here");
}

}  // namespace dovetail::jinja
