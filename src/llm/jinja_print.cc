// Python's str(), repr() and json.dumps() of a value.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "llm/jinja_value.h"

namespace dovetail::jinja {
namespace {
std::string FloatRepr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  int exponent = 0;
  const char* from = text.data() + e + 1 + (text[e + 1] == '+');
  std::from_chars(from, end, exponent);
  std::string digits, sign = text[0] == '-' ? "-" : "";
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  const int n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string out = sign + digits.substr(0, 1);
    if (n > 1) out += "." + digits.substr(1);
    const std::string power = std::to_string(std::abs(exponent));
    return out + (exponent < 0 ? "e-" : "e+") + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1) return sign + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  return sign + digits.substr(0, static_cast<size_t>(exponent) + 1) + "." + digits.substr(static_cast<size_t>(exponent) + 1);
}

void AppendHex(unsigned char c, int digits, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (int i = digits; i > 2; --i) *out += '0';
  *out += kDigits[c >> 4];
  *out += kDigits[c & 15];
}

void AppendRepr(const Value& value, std::string* out) {
  if (const std::string* s = value.text()) {
    const char quote = s->find('\'') != std::string::npos && s->find('"') == std::string::npos ? '"' : '\'';
    *out += quote;
    for (const char c : *s) {
      if (c == '\n') {
        *out += "\\n";
      } else if (c == '\r') {
        *out += "\\r";
      } else if (c == '\t') {
        *out += "\\t";
      } else if (c == '\\' || c == quote) {
        *out += '\\';
        *out += c;
      } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
        *out += "\\x";
        AppendHex(static_cast<unsigned char>(c), 2, out);
      } else {
        *out += c;
      }
    }
    *out += quote;
  } else if (const List* l = value.list()) {
    *out += l->tuple ? '(' : '[';
    for (size_t i = 0; i < l->items.size(); ++i) {
      if (i > 0) *out += ", ";
      AppendRepr(l->items[i], out);
    }
    if (l->tuple && l->items.size() == 1) *out += ',';
    *out += l->tuple ? ')' : ']';
  } else if (const Dict* d = value.dict()) {
    *out += '{';
    for (size_t i = 0; i < d->items.size(); ++i) {
      if (i > 0) *out += ", ";
      AppendRepr(d->items[i].first, out);
      *out += ": ";
      AppendRepr(d->items[i].second, out);
    }
    *out += '}';
  } else if (const bool* b = value.as<bool>()) {
    *out += *b ? "True" : "False";
  } else if (const int64_t* i = value.as<int64_t>()) {
    *out += std::to_string(*i);
  } else if (const double* f = value.as<double>()) {
    *out += FloatRepr(*f);
  } else if (value.none()) {
    *out += "None";
  } else if (!value.undefined()) {
    *out += StrCat("<", value.type(), ">");
  } else {
    *out += "Undefined";
  }
}

void AppendJsonString(std::string_view s, std::string* out) {
  *out += '"';
  for (const char c : s) {
    switch (c) {
      case '"': *out += "\\\""; break;
      case '\\': *out += "\\\\"; break;
      case '\n': *out += "\\n"; break;
      case '\r': *out += "\\r"; break;
      case '\t': *out += "\\t"; break;
      case '\b': *out += "\\b"; break;
      case '\f': *out += "\\f"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          *out += "\\u";
          AppendHex(static_cast<unsigned char>(c), 4, out);
        } else {
          *out += c;
        }
    }
  }
  *out += '"';
}

Status AppendJson(const Value& value, int64_t indent, int64_t level, std::string* out) {
  const auto newline = [&](int64_t depth) {
    if (indent >= 0) *out += "\n" + std::string(static_cast<size_t>(indent * depth), ' ');
  };
  const auto comma = [&](bool first) {
    if (!first) *out += indent >= 0 ? "," : ", ";
    newline(level + 1);
  };
  if (const std::string* s = value.text()) {
    AppendJsonString(*s, out);
  } else if (const List* l = value.list()) {
    *out += '[';
    for (size_t i = 0; i < l->items.size(); ++i) {
      comma(i == 0);
      DT_RETURN_IF_ERROR(AppendJson(l->items[i], indent, level + 1, out));
    }
    if (!l->items.empty()) newline(level);
    *out += ']';
  } else if (const Dict* d = value.dict()) {
    *out += '{';
    for (size_t i = 0; i < d->items.size(); ++i) {
      comma(i == 0);
      const auto& [key, item] = d->items[i];
      std::string name;
      if (const std::string* s = key.text()) {
        name = *s;
      } else {
        DT_RETURN_IF_ERROR(AppendJson(key, -1, 0, &name));
      }
      AppendJsonString(name, out);
      *out += ": ";
      DT_RETURN_IF_ERROR(AppendJson(item, indent, level + 1, out));
    }
    if (!d->items.empty()) newline(level);
    *out += '}';
  } else if (const bool* b = value.as<bool>()) {
    *out += *b ? "true" : "false";
  } else if (value.none()) {
    *out += "null";
  } else if (const double* f = value.as<double>(); f && !std::isfinite(*f)) {
    *out += std::isnan(*f) ? "NaN" : *f < 0 ? "-Infinity" : "Infinity";
  } else if (f || value.as<int64_t>()) {
    AppendRepr(value, out);
  } else {
    return InvalidArgument("tojson cannot write a value that is ", value.type());
  }
  return OkStatus();
}
}  // namespace

std::string Repr(const Value& value) {
  std::string out;
  AppendRepr(value, &out);
  return out;
}

std::string ToString(const Value& value) {
  if (const std::string* s = value.text()) return *s;
  if (value.undefined()) return {};
  return Repr(value);
}

Status ToJson(const Value& value, int64_t indent, std::string* out) { return AppendJson(value, std::min<int64_t>(indent, 16), 0, out); }

}  // namespace dovetail::jinja
