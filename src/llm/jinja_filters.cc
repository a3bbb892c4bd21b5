// The filters: value|name(args).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

#include "llm/jinja_eval.h"
#include "llm/jinja_text.h"
#include "llm/utf8.h"

namespace dovetail::jinja {
namespace {
using Filter = Result<Value> (*)(Evaluator&, const Value&, const Args&);

Result<Value> TrimFilter(Evaluator&, const Value& v, const Args& args) {
  const Value* chars = args.Find(0, "chars");
  const std::string s = ToString(v);
  return Value::Text(Strip(s, true, true, chars && chars->text() ? std::optional<std::string_view>(*chars->text()) : std::nullopt));
}

Result<Value> LengthFilter(Evaluator&, const Value& v, const Args&) {
  if (const std::string* s = v.text()) return Value::Int(static_cast<int64_t>(CountUtf8(*s)));
  if (const List* l = v.list()) return Value::Int(static_cast<int64_t>(l->items.size()));
  if (const Dict* d = v.dict()) return Value::Int(static_cast<int64_t>(d->items.size()));
  if (v.undefined()) return Value::Int(0);
  return InvalidArgument("a ", v.type(), " has no length");
}

template <std::string (*F)(std::string_view)>
Result<Value> TextFilter(Evaluator&, const Value& v, const Args&) { return Value::Text(F(ToString(v))); }

std::string Same(std::string_view s) { return std::string(s); }

std::string Escape(std::string_view s) {
  std::string out;
  for (const char c : s) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&#34;";
    } else if (c == '\'') {
      out += "&#39;";
    } else {
      out += c;
    }
  }
  return out;
}

Result<Value> ToJsonFilter(Evaluator& e, const Value& v, const Args& args) {
  DT_ASSIGN_OR_RETURN(const int64_t indent, args.Int(1, "indent", -1));
  const Value* separators = args.Find(2, "separators");
  if (separators && !separators->none()) return Unsupported("tojson does not take 'separators' here");
  std::string out;
  if (indent > 0) DT_RETURN_IF_ERROR(e.Charge(v.weight() * 16));
  DT_RETURN_IF_ERROR(ToJson(v, indent, &out));
  return Value::Text(std::move(out));
}

Result<Value> DefaultFilter(Evaluator&, const Value& v, const Args& args) {
  const Value* otherwise = args.Find(0, "default_value");
  const Value* boolean = args.Find(1, "boolean");
  if (v.undefined() || (boolean && boolean->truthy() && !v.truthy())) return otherwise ? *otherwise : Value::Text("");
  return v;
}

Result<Value> JoinFilter(Evaluator& e, const Value& v, const Args& args) {
  const Value* separator = args.Find(0, "d");
  const Value* attribute = args.Find(1, "attribute");
  const std::string between = separator ? ToString(*separator) : std::string();
  DT_ASSIGN_OR_RETURN(const std::vector<Value> items, e.Iterate(v));
  std::string out;
  bool first = true;
  for (const Value& item : items) {
    Value part = item;
    if (attribute && attribute->text()) {
      DT_ASSIGN_OR_RETURN(part, e.GetPath(item, *attribute->text()));
    }
    DT_RETURN_IF_ERROR(e.Charge(part.weight() + between.size()));
    if (!std::exchange(first, false)) out += between;
    out += ToString(part);
  }
  return Value::Text(std::move(out));
}

template <bool kLast>
Result<Value> EndFilter(Evaluator& e, const Value& v, const Args&) {
  DT_ASSIGN_OR_RETURN(const std::vector<Value> items, e.Iterate(v));
  if (items.empty()) return Value::Missing(kLast ? "the last item" : "the first item");
  return kLast ? items.back() : items.front();
}

Result<Value> ListFilter(Evaluator& e, const Value& v, const Args&) {
  DT_ASSIGN_OR_RETURN(std::vector<Value> items, e.Iterate(v));
  return MakeList(std::move(items));
}

Result<Value> ReverseFilter(Evaluator& e, const Value& v, const Args&) {
  DT_ASSIGN_OR_RETURN(std::vector<Value> items, e.Iterate(v));
  std::reverse(items.begin(), items.end());
  if (!v.text()) return MakeList(std::move(items));
  std::string out;
  for (const Value& item : items) out += *item.text();
  return Value::Text(std::move(out));
}

Result<Value> UniqueFilter(Evaluator& e, const Value& v, const Args&) {
  DT_ASSIGN_OR_RETURN(const std::vector<Value> items, e.Iterate(v));
  std::vector<Value> out;
  for (const Value& item : items) {
    DT_RETURN_IF_ERROR(e.Charge(out.size()));
    if (std::none_of(out.begin(), out.end(), [&](const Value& o) { return Equal(o, item); })) out.push_back(item);
  }
  return MakeList(std::move(out));
}

Value Folded(const Value& v) { return v.text() ? Value::Text(Lower(*v.text())) : v; }

// Sorts by key, stable, without regard to case as Jinja does by default.
Status SortBy(std::vector<std::pair<Value, Value>>* keyed, bool reverse) {
  Status failed;
  const auto less = [&](const auto& a, const auto& b) {
    auto order = Compare(a.first, b.first);
    if (!order.ok()) {
      if (failed.ok()) failed = std::move(order).status();
      return false;
    }
    return reverse ? *order > 0 : *order < 0;
  };
  std::stable_sort(keyed->begin(), keyed->end(), less);
  return failed;
}

Result<Value> SortFilter(Evaluator& e, const Value& v, const Args& args) {
  const Value* reverse = args.Find(0, "reverse");
  const Value* exact = args.Find(1, "case_sensitive");
  const Value* attribute = args.Find(2, "attribute");
  DT_ASSIGN_OR_RETURN(std::vector<Value> items, e.Iterate(v));
  DT_RETURN_IF_ERROR(e.Charge(v.weight() * 20));
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items) {
    Value key = item;
    if (attribute && attribute->text()) {
      DT_ASSIGN_OR_RETURN(key, e.GetPath(item, *attribute->text()));
    }
    keyed.emplace_back(exact && exact->truthy() ? key : Folded(key), std::move(item));
  }
  DT_RETURN_IF_ERROR(SortBy(&keyed, reverse && reverse->truthy()));
  items.clear();
  for (auto& [key, item] : keyed) items.push_back(std::move(item));
  return MakeList(std::move(items));
}

Result<Value> ItemsFilter(Evaluator& e, const Value& v, const Args& args) {
  if (v.undefined()) return MakeList({});
  if (!v.dict()) return InvalidArgument("items takes a dict, not ", v.type());
  return CallMethod(e, v, "items", args);
}

Result<Value> DictSortFilter(Evaluator& e, const Value& v, const Args&) {
  if (!v.dict()) return InvalidArgument("dictsort takes a dict, not ", v.type());
  DT_ASSIGN_OR_RETURN(const Value pairs, ItemsFilter(e, v, {}));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& pair : pairs.list()->items) keyed.emplace_back(Folded(pair.list()->items[0]), pair);
  DT_RETURN_IF_ERROR(SortBy(&keyed, false));
  std::vector<Value> out;
  for (auto& [key, pair] : keyed) out.push_back(std::move(pair));
  return MakeList(std::move(out));
}

Result<Value> FloatFilter(Evaluator&, const Value& v, const Args& args) {
  double d;
  if (v.number(&d)) return Value::Float(d);
  if (const std::string* text = v.text()) {
    const std::string s = Strip(*text, true, true, std::nullopt);
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), d);
    if (error == std::errc() && end == s.data() + s.size()) return Value::Float(d);
  }
  const Value* otherwise = args.Find(0, "default");
  return otherwise ? *otherwise : Value::Float(0);
}

Result<Value> IntFilter(Evaluator& e, const Value& v, const Args& args) {
  int64_t i;
  if (v.integer(&i)) return Value::Int(i);
  if (const std::string* text = v.text()) {
    const std::string s = Strip(*text, true, true, std::nullopt);
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), i);
    if (error == std::errc() && end == s.data() + s.size()) return Value::Int(i);
  }
  DT_ASSIGN_OR_RETURN(const Value number, FloatFilter(e, v, Args{{Value::Nothing()}, {}}));
  if (const double* d = number.as<double>(); d && std::fabs(*d) < 9e18) return Value::Int(static_cast<int64_t>(*d));
  const Value* otherwise = args.Find(0, "default");
  return otherwise ? *otherwise : Value::Int(0);
}

Result<Value> AbsFilter(Evaluator&, const Value& v, const Args&) {
  double d;
  if (!v.number(&d)) return InvalidArgument("abs takes a number, not ", v.type());
  return d < 0 ? Arithmetic("-", Value::Int(0), v) : v;
}

Result<Value> ReplaceFilter(Evaluator& e, const Value& v, const Args& args) {
  return CallMethod(e, Value::Text(ToString(v)), "replace", args);
}

Result<Value> IndentFilter(Evaluator& e, const Value& v, const Args& args) {
  const Value* width = args.Find(0, "width");
  const Value* first = args.Find(1, "first");
  const Value* blank = args.Find(2, "blank");
  std::string by;
  if (width && width->text()) {
    by = *width->text();
  } else {
    DT_ASSIGN_OR_RETURN(const int64_t count, args.Int(0, "width", 4));
    by.assign(static_cast<size_t>(std::clamp<int64_t>(count, 0, 1000)), ' ');
  }
  std::string out;
  bool at_first = true;
  for (const std::string& line : SplitLines(ToString(v) + "\n")) {
    DT_RETURN_IF_ERROR(e.Charge(by.size() + line.size()));
    const bool indents = at_first ? first && first->truthy() : !line.empty() || (blank && blank->truthy());
    if (!std::exchange(at_first, false)) out += '\n';
    if (indents) out += by;
    out += line;
  }
  return Value::Text(std::move(out));
}

Result<Value> MapFilter(Evaluator& e, const Value& v, const Args& args) {
  DT_ASSIGN_OR_RETURN(const std::vector<Value> items, e.Iterate(v));
  std::vector<Value> out;
  if (args.positional.empty()) {
    const Value* attribute = args.Find(0, "attribute");
    const Value* otherwise = args.Find(1, "default");
    if (!attribute || !attribute->text()) return InvalidArgument("map takes the name of a filter or attribute=");
    for (const Value& item : items) {
      DT_ASSIGN_OR_RETURN(Value value, e.GetPath(item, *attribute->text()));
      out.push_back(value.undefined() && otherwise ? *otherwise : std::move(value));
    }
    return MakeList(std::move(out));
  }
  DT_ASSIGN_OR_RETURN(const std::string name, args.Text(0, "filter", ""));
  const Args rest{{args.positional.begin() + 1, args.positional.end()}, args.named};
  for (const Value& item : items) {
    DT_RETURN_IF_ERROR(e.Charge(item.weight()));
    DT_ASSIGN_OR_RETURN(Value value, e.ApplyFilter(name, item, rest));
    DT_RETURN_IF_ERROR(e.Charge(value.weight()));
    out.push_back(std::move(value));
  }
  return MakeList(std::move(out));
}

// select, reject, selectattr and rejectattr.
template <bool kKeep, bool kAttribute>
Result<Value> SelectFilter(Evaluator& e, const Value& v, const Args& args) {
  DT_ASSIGN_OR_RETURN(const std::vector<Value> items, e.Iterate(v));
  const size_t first = kAttribute ? 1 : 0;
  std::string attribute;
  if (kAttribute) {
    DT_ASSIGN_OR_RETURN(attribute, args.Text(0, "attribute", ""));
  }
  DT_ASSIGN_OR_RETURN(const std::string test, args.Text(first, "test", ""));
  Args rest;
  if (args.positional.size() > first + 1) rest.positional.assign(args.positional.begin() + static_cast<ptrdiff_t>(first) + 1, args.positional.end());
  std::vector<Value> out;
  for (const Value& item : items) {
    Value value = item;
    if (kAttribute) {
      DT_ASSIGN_OR_RETURN(value, e.GetPath(item, attribute));
    }
    bool result = value.truthy();
    if (!test.empty()) {
      DT_ASSIGN_OR_RETURN(result, e.ApplyTest(test, value, rest));
    }
    if (result == kKeep) out.push_back(item);
  }
  return MakeList(std::move(out));
}

struct Row {
  std::string_view name;
  Filter filter;
};
constexpr Row kFilters[] = {
    {"trim", TrimFilter}, {"length", LengthFilter}, {"count", LengthFilter},
    {"upper", TextFilter<Upper>}, {"lower", TextFilter<Lower>}, {"capitalize", TextFilter<Capitalize>}, {"title", TextFilter<Title>},
    {"string", TextFilter<Same>}, {"safe", TextFilter<Same>}, {"escape", TextFilter<Escape>}, {"e", TextFilter<Escape>},
    {"tojson", ToJsonFilter}, {"default", DefaultFilter}, {"d", DefaultFilter}, {"join", JoinFilter},
    {"first", EndFilter<false>}, {"last", EndFilter<true>}, {"list", ListFilter}, {"reverse", ReverseFilter}, {"unique", UniqueFilter},
    {"sort", SortFilter}, {"items", ItemsFilter}, {"dictsort", DictSortFilter},
    {"int", IntFilter}, {"float", FloatFilter}, {"abs", AbsFilter}, {"replace", ReplaceFilter}, {"indent", IndentFilter},
    {"map", MapFilter}, {"select", SelectFilter<true, false>}, {"reject", SelectFilter<false, false>},
    {"selectattr", SelectFilter<true, true>}, {"rejectattr", SelectFilter<false, true>},
};
}  // namespace

Result<Value> Evaluator::ApplyFilter(std::string_view name, const Value& value, const Args& args) {
  for (const Row& row : kFilters) {
    if (row.name == name) return row.filter(*this, value, args);
  }
  return Unsupported("the filter '", name, "' is not supported");
}

}  // namespace dovetail::jinja
