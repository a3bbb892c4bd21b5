#include "core/attr.h"

#include <charconv>
#include <cmath>

namespace dovetail {

const std::vector<Dim>& Attr::Dims() const {
  static const std::vector<Dim>* empty = new std::vector<Dim>;
  const auto* v = get<std::vector<Dim>>();
  return v ? *v : *empty;
}

double Attr::Number(double fallback) const {
  if (const double* d = get<double>()) return *d;
  if (const Dim* i = get<Dim>(); i && i->is_constant()) return static_cast<double>(i->value());
  if (const bool* b = get<bool>()) return *b ? 1 : 0;
  return fallback;
}

int64_t Attr::IntAt(size_t i, int64_t fallback) const {
  if (is<Dim>()) return Int(fallback);
  const std::vector<Dim>& v = Dims();
  if (v.empty()) return fallback;
  const Dim d = v.size() == 1 ? v[0] : i < v.size() ? v[i] : Dim(fallback);
  return d.constant().value_or(fallback);
}

std::string FormatDouble(double v) {
  if (std::isnan(v)) return "nan";
  if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
  char buffer[64];
  auto [end, ec] = std::to_chars(buffer, buffer + sizeof buffer, v);
  std::string s(buffer, end);
  if (s.find_first_of(".e") == std::string::npos) s += ".0";
  return s;
}

namespace {
template <class T, class Fn>
std::string List(const std::vector<T>& v, Fn text) {
  std::string s = "[";
  for (size_t i = 0; i < v.size(); ++i) {
    if (i) s += ',';
    s += text(v[i]);
  }
  return s + "]";
}
std::string Quote(const std::string& v) {
  std::string s = "\"";
  for (char c : v) {
    if (c == '"' || c == '\\') s += '\\';
    if (c == '\n') s += "\\n";
    else s += c;
  }
  return s + "\"";
}
}  // namespace

std::string Attr::ToString() const {
  struct Visitor {
    std::string operator()(std::monostate) { return "none"; }
    std::string operator()(bool v) { return v ? "true" : "false"; }
    std::string operator()(Dim v) { return v.ToString(); }
    std::string operator()(double v) { return FormatDouble(v); }
    std::string operator()(const std::string& v) { return Quote(v); }
    std::string operator()(const std::vector<Dim>& v) { return List(v, [](Dim d) { return d.ToString(); }); }
    std::string operator()(const std::vector<double>& v) { return List(v, FormatDouble); }
    std::string operator()(const std::vector<bool>& v) { return List(v, [](bool b) { return std::string(b ? "true" : "false"); }); }
    std::string operator()(DType v) { return std::string(Name(v)); }
  };
  return std::visit(Visitor{}, value_);
}

}  // namespace dovetail
