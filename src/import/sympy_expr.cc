#include "import/sympy_expr.h"

#include <cctype>
#include <charconv>
#include <optional>
#include <vector>

namespace dovetail::pt2 {
namespace {

constexpr int kMaxDepth = 64, kMaxPower = 8;
constexpr size_t kMaxLength = 1 << 16, kMaxExpanded = 4096;  // characters; products of sums grow when they are multiplied out

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Dim> Parse() {
    DT_ASSIGN_OR_RETURN(const Dim d, Expression(0));
    if (Peek() != '\0') return Malformed();
    return d;
  }

 private:
  Status Malformed() const {
    const size_t from = pos_ > 20 ? pos_ - 20 : 0;
    return Corrupt("cannot read a size expression at '", text_.substr(from, 60), "'");
  }
  static bool TooLong(Dim d) { return !d.is_constant() && d.ToString().size() > kMaxExpanded; }
  static Status TooLongError() { return Unsupported("a size expression that is longer than ", kMaxExpanded, " characters when multiplied out"); }
  char Peek() {
    while (pos_ < text_.size() && text_[pos_] == ' ') ++pos_;
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }
  bool Eat(char c) {
    if (Peek() != c) return false;
    ++pos_;
    return true;
  }
  // A name may be dotted, as in torch.utils._sympy.functions.FloorDiv: the last part counts.
  std::string_view Word() {
    Peek();
    size_t begin = pos_;
    while (pos_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[pos_])) || text_[pos_] == '_' || text_[pos_] == '.')) {
      if (text_[pos_] == '.') begin = pos_ + 1;
      ++pos_;
    }
    return text_.substr(begin, pos_ - begin);
  }

  Result<Dim> Integer() {
    Peek();
    const size_t begin = pos_;
    if (pos_ < text_.size() && text_[pos_] == '-') ++pos_;
    while (pos_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[pos_]))) ++pos_;
    int64_t v = 0;
    const auto [end, error] = std::from_chars(text_.data() + begin, text_.data() + pos_, v);
    if (error != std::errc() || end != text_.data() + pos_) return Malformed();
    return Dim(v);
  }

  // After "Symbol(": a quoted name, then assumptions, which are ranges' business.
  Result<Dim> SymbolName() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return Malformed();
    const size_t begin = ++pos_;
    while (pos_ < text_.size() && text_[pos_] != quote) ++pos_;
    const std::string_view name = text_.substr(begin, pos_ - begin);
    bool plain = !name.empty() && !std::isdigit(static_cast<unsigned char>(name[0]));
    for (char c : name) plain = plain && (std::isalnum(static_cast<unsigned char>(c)) || c == '_');
    if (!plain) return Malformed();
    while (pos_ < text_.size() && text_[pos_] != ')') ++pos_;
    return Dim::Symbol(name);
  }

  Result<Dim> Expression(int depth) {
    if (depth > kMaxDepth) return Corrupt("a size expression is nested too deeply");
    const char c = Peek();
    if (c == '-' || std::isdigit(static_cast<unsigned char>(c))) return Integer();
    const std::string_view head = Word();
    if (head.empty()) return Malformed();
    if (!Eat('(')) return Constant(head);
    if (head == "Integer" || head == "Symbol") {
      auto d = head == "Integer" ? Integer() : SymbolName();
      if (!d.ok()) return d;
      if (!Eat(')')) return Malformed();
      return d;
    }
    std::vector<Dim> args;
    while (!Eat(')')) {
      if (!args.empty() && !Eat(',')) return Malformed();
      DT_ASSIGN_OR_RETURN(const Dim arg, Expression(depth + 1));
      args.push_back(arg);
    }
    return Apply(head, args);
  }

  Result<Dim> Constant(std::string_view name) {
    if (name == "int_oo") return Dim(INT64_MAX);
    if (name == "One") return Dim(1);
    if (name == "Zero") return Dim(0);
    if (name == "NegativeOne") return Dim(-1);
    return Unsupported("a size expression with '", name, "'");
  }

  Result<Dim> Apply(std::string_view head, const std::vector<Dim>& args) {
    if (args.empty()) return Malformed();
    if (head == "Add" || head == "Mul" || head == "Max" || head == "Min") {
      Dim d = args[0];
      for (size_t i = 1; i < args.size(); ++i) {
        d = head == "Add" ? d + args[i] : head == "Mul" ? d * args[i] : head == "Max" ? Dim::Max(d, args[i]) : Dim::Min(d, args[i]);
        if (TooLong(d)) return TooLongError();
      }
      return d;
    }
    if (args.size() == 1) {
      if (head == "ToInt" || head == "TruncToInt" || head == "FloorToInt" || head == "CeilToInt" || head == "Identity") return args[0];
      return Unsupported("a size expression with ", head, "(x)");
    }
    if (args.size() == 3 && head == "ModularIndexing") {
      if (args[1] == Dim(0) || args[2] == Dim(0)) return Corrupt("a size expression divides by 0");
      return Dim::Mod(Dim::FloorDiv(args[0], args[1]), args[2]);
    }
    if (args.size() != 2) return Unsupported("a size expression with ", head, " of ", args.size(), " arguments");
    const Dim a = args[0], b = args[1];
    if (head == "Pow" || head == "PowByNatural") {
      if (!b.is_constant() || b.value() < 0 || b.value() > kMaxPower) return Unsupported("a size expression with the power ", b.ToString());
      Dim d = 1;
      for (int64_t i = 0; i < b.value(); ++i) {
        d = d * a;
        if (TooLong(d)) return TooLongError();
      }
      return d;
    }
    const bool divides = head == "FloorDiv" || head == "CleanDiv" || head == "IntTrueDiv" || head == "CeilDiv" || head == "Mod" || head == "PythonMod";
    if (!divides) return Unsupported("a size expression with ", head, "(x, y)");
    if (b == Dim(0)) return Corrupt("a size expression divides by 0");
    if (head == "Mod" || head == "PythonMod") return Dim::Mod(a, b);
    if (head == "CeilDiv") return Dim::FloorDiv(a + b - Dim(1), b);
    if (head == "IntTrueDiv") {
      if (auto exact = Dim::DivideExact(a, b)) return *exact;
      return Unsupported("a size expression with the fraction ", a.ToString(), " / ", b.ToString());
    }
    return Dim::FloorDiv(a, b);
  }

  const std::string_view text_;
  size_t pos_ = 0;
};

}  // namespace

Result<Dim> ParseSympy(std::string_view srepr) {
  if (srepr.size() > kMaxLength) return Corrupt("a size expression of ", srepr.size(), " characters is too long");
  return Parser(srepr).Parse();
}

}  // namespace dovetail::pt2
