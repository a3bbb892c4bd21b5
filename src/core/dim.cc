#include "core/dim.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

#include "base/check.h"

namespace dovetail {
namespace {

int64_t SatAdd(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) return b > 0 ? INT64_MAX : INT64_MIN;
  return r;
}
int64_t SatMul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return (a > 0) == (b > 0) ? INT64_MAX : INT64_MIN;
  return r;
}
int64_t FloorDivide(int64_t a, int64_t b) {
  if (b == 0) return 0;
  if (b == -1) return a == INT64_MIN ? INT64_MAX : -a;
  const int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}
int64_t FloorModulo(int64_t a, int64_t b) {
  if (b == 0 || b == -1) return 0;
  const int64_t r = a % b;
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}
bool Overflows(int64_t a, int64_t b) { return a == INT64_MIN && b == -1; }  // a / b and a % b

enum class AtomKind : uint8_t { kSymbol, kFloorDiv, kMod, kMin, kMax };

struct Atom {
  AtomKind kind;
  std::string text;  // also the key of the intern table
  Dim a, b;
};

struct Term {
  int64_t coefficient;
  std::vector<const Atom*> atoms;  // sorted by text; a power repeats its atom
};

std::string MonomialText(const std::vector<const Atom*>& atoms) {
  std::string s;
  for (const Atom* a : atoms) {
    if (!s.empty()) s += '*';
    s += a->text;
  }
  return s;
}

struct InternTable {
  std::mutex mutex;
  std::unordered_map<std::string, std::unique_ptr<const Atom>> atoms;
  std::unordered_map<std::string, std::unique_ptr<const DimExpr>> exprs;
};
// Never destroyed: Dims may outlive any static.
InternTable& Table() {
  static InternTable* table = new InternTable;
  return *table;
}

}  // namespace

struct DimExpr {
  std::vector<Term> terms;  // sorted by monomial text, the constant (no atoms) last; coefficients are not zero
  std::string text;

  static const std::vector<Term>& TermsOf(Dim d, std::vector<Term>& storage) {
    if (d.expr_) return d.expr_->terms;
    storage.clear();
    if (d.value_ != 0) storage.push_back({d.value_, {}});
    return storage;
  }

  static Dim Make(std::map<std::string, Term>&& by_monomial) {
    std::vector<Term> terms;
    for (auto& [key, term] : by_monomial)
      if (!key.empty() && term.coefficient != 0) terms.push_back(std::move(term));
    int64_t constant = 0;
    if (auto it = by_monomial.find(""); it != by_monomial.end()) constant = it->second.coefficient;
    if (terms.empty()) return Dim(constant);
    if (constant != 0) terms.push_back({constant, {}});
    std::string text;
    for (const Term& t : terms) {
      const std::string monomial = MonomialText(t.atoms);
      if (!text.empty() && t.coefficient >= 0) text += '+';
      if (monomial.empty()) {
        text += std::to_string(t.coefficient);
      } else if (t.coefficient == 1) {
        text += monomial;
      } else if (t.coefficient == -1) {
        text += "-" + monomial;
      } else {
        text += std::to_string(t.coefficient) + "*" + monomial;
      }
    }
    Dim d;
    InternTable& table = Table();
    std::lock_guard<std::mutex> lock(table.mutex);
    auto& slot = table.exprs[text];
    if (!slot) slot = std::make_unique<DimExpr>(DimExpr{std::move(terms), text});
    d.expr_ = slot.get();
    return d;
  }

  static Dim FromAtom(AtomKind kind, std::string text, Dim a, Dim b) {
    const Atom* atom;
    {
      InternTable& table = Table();
      std::lock_guard<std::mutex> lock(table.mutex);
      auto& slot = table.atoms[text];
      if (!slot) slot = std::make_unique<Atom>(Atom{kind, text, a, b});
      atom = slot.get();
    }
    std::map<std::string, Term> terms;
    terms[atom->text] = {1, {atom}};
    return Make(std::move(terms));
  }

  static Dim Combine(Dim a, Dim b, int64_t sign) {
    std::vector<Term> sa, sb;
    std::map<std::string, Term> terms;
    for (const Term& t : TermsOf(a, sa)) terms[MonomialText(t.atoms)] = t;
    for (const Term& t : TermsOf(b, sb)) {
      auto [it, inserted] = terms.try_emplace(MonomialText(t.atoms), Term{0, t.atoms});
      it->second.coefficient = SatAdd(it->second.coefficient, SatMul(sign, t.coefficient));
    }
    return Make(std::move(terms));
  }

  template <class Fn>
  static Dim Map(Dim d, const Fn& atom_value) {
    if (!d.expr_) return d;
    Dim sum = 0;
    for (const Term& t : d.expr_->terms) {
      Dim product = t.coefficient;
      for (const Atom* a : t.atoms) product = product * atom_value(*a);
      sum = sum + product;
    }
    return sum;
  }
};

Dim Dim::Symbol(std::string_view name) { return DimExpr::FromAtom(AtomKind::kSymbol, std::string(name), 0, 0); }

Dim operator+(Dim a, Dim b) {
  if (a.is_constant() && b.is_constant()) return SatAdd(a.value(), b.value());
  return DimExpr::Combine(a, b, 1);
}
Dim operator-(Dim a, Dim b) {
  if (a.is_constant() && b.is_constant()) return SatAdd(a.value(), SatMul(-1, b.value()));
  return DimExpr::Combine(a, b, -1);
}
Dim operator*(Dim a, Dim b) {
  if (a.is_constant() && b.is_constant()) return SatMul(a.value(), b.value());
  std::vector<Term> sa, sb;
  std::map<std::string, Term> terms;
  for (const Term& x : DimExpr::TermsOf(a, sa)) {
    for (const Term& y : DimExpr::TermsOf(b, sb)) {
      std::vector<const Atom*> atoms = x.atoms;
      atoms.insert(atoms.end(), y.atoms.begin(), y.atoms.end());
      std::sort(atoms.begin(), atoms.end(), [](const Atom* p, const Atom* q) { return p->text < q->text; });
      auto [it, inserted] = terms.try_emplace(MonomialText(atoms), Term{0, atoms});
      it->second.coefficient = SatAdd(it->second.coefficient, SatMul(x.coefficient, y.coefficient));
    }
  }
  return DimExpr::Make(std::move(terms));
}

std::optional<Dim> Dim::DivideExact(Dim a, Dim b) {
  if (b == Dim(0)) return std::nullopt;
  if (a == b) return Dim(1);
  if (a.is_constant() && b.is_constant()) {
    const int64_t quotient = FloorDivide(a.value(), b.value());
    return SatMul(quotient, b.value()) == a.value() ? std::optional(Dim(quotient)) : std::nullopt;
  }
  std::vector<Term> sa, sb;
  const std::vector<Term>& divisor = DimExpr::TermsOf(b, sb);
  if (divisor.size() != 1) {
    // Only a constant multiple of the whole divisor is recognised.
    const std::vector<Term>& dividend = DimExpr::TermsOf(a, sa);
    if (dividend.size() != divisor.size() || dividend.empty() || divisor[0].coefficient == 0) return std::nullopt;
    if (Overflows(dividend[0].coefficient, divisor[0].coefficient)) return std::nullopt;
    const int64_t k = dividend[0].coefficient / divisor[0].coefficient;
    return b * Dim(k) == a ? std::optional(Dim(k)) : std::nullopt;
  }
  std::map<std::string, Term> terms;
  for (const Term& t : DimExpr::TermsOf(a, sa)) {
    if (Overflows(t.coefficient, divisor[0].coefficient) || t.coefficient % divisor[0].coefficient != 0) return std::nullopt;
    std::vector<const Atom*> atoms = t.atoms;
    for (const Atom* d : divisor[0].atoms) {
      auto it = std::find(atoms.begin(), atoms.end(), d);
      if (it == atoms.end()) return std::nullopt;
      atoms.erase(it);
    }
    terms[MonomialText(atoms)] = {t.coefficient / divisor[0].coefficient, atoms};
  }
  return DimExpr::Make(std::move(terms));
}

Dim Dim::FloorDiv(Dim a, Dim b) {
  if (a.is_constant() && b.is_constant()) return FloorDivide(a.value(), b.value());
  if (b == Dim(1)) return a;
  if (auto exact = DivideExact(a, b)) return *exact;
  return DimExpr::FromAtom(AtomKind::kFloorDiv, StrCat("floordiv(", a.ToString(), ",", b.ToString(), ")"), a, b);
}
Dim Dim::Mod(Dim a, Dim b) {
  if (a.is_constant() && b.is_constant()) return FloorModulo(a.value(), b.value());
  if (DivideExact(a, b)) return 0;
  return DimExpr::FromAtom(AtomKind::kMod, StrCat("mod(", a.ToString(), ",", b.ToString(), ")"), a, b);
}
Dim Dim::Min(Dim a, Dim b) {
  if (a == b) return a;
  if (a.is_constant() && b.is_constant()) return std::min(a.value(), b.value());
  if (a.is_constant() || (!b.is_constant() && b.ToString() < a.ToString())) std::swap(a, b);
  return DimExpr::FromAtom(AtomKind::kMin, StrCat("min(", a.ToString(), ",", b.ToString(), ")"), a, b);
}
Dim Dim::Max(Dim a, Dim b) {
  if (a == b) return a;
  if (a.is_constant() && b.is_constant()) return std::max(a.value(), b.value());
  if (a.is_constant() || (!b.is_constant() && b.ToString() < a.ToString())) std::swap(a, b);
  return DimExpr::FromAtom(AtomKind::kMax, StrCat("max(", a.ToString(), ",", b.ToString(), ")"), a, b);
}

Dim Dim::Substitute(const std::function<std::optional<Dim>(std::string_view)>& replace) const {
  return DimExpr::Map(*this, [&](const Atom& atom) -> Dim {
    switch (atom.kind) {
      case AtomKind::kSymbol: return replace(atom.text).value_or(Symbol(atom.text));
      case AtomKind::kFloorDiv: return FloorDiv(atom.a.Substitute(replace), atom.b.Substitute(replace));
      case AtomKind::kMod: return Mod(atom.a.Substitute(replace), atom.b.Substitute(replace));
      case AtomKind::kMin: return Min(atom.a.Substitute(replace), atom.b.Substitute(replace));
      case AtomKind::kMax: return Max(atom.a.Substitute(replace), atom.b.Substitute(replace));
    }
    return 0;
  });
}

std::optional<int64_t> Dim::Evaluate(const SymbolValues& values) const {
  if (is_constant()) return value_;
  int64_t sum = 0;
  for (const Term& t : expr_->terms) {
    int64_t product = t.coefficient;
    for (const Atom* atom : t.atoms) {
      std::optional<int64_t> v;
      if (atom->kind == AtomKind::kSymbol) {
        v = values(atom->text);
      } else {
        const auto a = atom->a.Evaluate(values), b = atom->b.Evaluate(values);
        if (!a || !b) return std::nullopt;
        switch (atom->kind) {
          case AtomKind::kFloorDiv: v = FloorDivide(*a, *b); break;
          case AtomKind::kMod: v = FloorModulo(*a, *b); break;
          case AtomKind::kMin: v = std::min(*a, *b); break;
          default: v = std::max(*a, *b); break;
        }
      }
      if (!v) return std::nullopt;
      product = SatMul(product, *v);
    }
    sum = SatAdd(sum, product);
  }
  return sum;
}

DimRange Dim::Bounds(const SymbolRanges& ranges) const {
  if (is_constant()) return {value_, value_};
  DimRange sum{0, 0};
  for (const Term& t : expr_->terms) {
    DimRange product{t.coefficient, t.coefficient};
    for (const Atom* atom : t.atoms) {
      DimRange r{0, DimRange::kUnbounded};
      if (atom->kind == AtomKind::kSymbol) {
        if (auto it = ranges.find(atom->text); it != ranges.end()) r = it->second;
      } else {
        const DimRange a = atom->a.Bounds(ranges), b = atom->b.Bounds(ranges);
        switch (atom->kind) {
          case AtomKind::kFloorDiv:
            if (b.min <= 0) r = {INT64_MIN, DimRange::kUnbounded};
            else r = {FloorDivide(a.min, a.min >= 0 ? b.max : b.min), a.max == DimRange::kUnbounded ? a.max : FloorDivide(a.max, a.max >= 0 ? b.min : b.max)};
            break;
          case AtomKind::kMod:
            r = {std::min<int64_t>(0, SatAdd(b.min, 1)), b.max == DimRange::kUnbounded ? b.max : std::max<int64_t>(0, SatAdd(b.max, -1))};
            break;
          case AtomKind::kMin: r = {std::min(a.min, b.min), std::min(a.max, b.max)}; break;
          default: r = {std::max(a.min, b.min), std::max(a.max, b.max)}; break;
        }
      }
      const int64_t c[] = {SatMul(product.min, r.min), SatMul(product.min, r.max), SatMul(product.max, r.min), SatMul(product.max, r.max)};
      product = {*std::min_element(c, c + 4), *std::max_element(c, c + 4)};
    }
    const bool unbounded = sum.max == DimRange::kUnbounded || product.max == DimRange::kUnbounded;  // and stays so, whatever is taken off
    sum = {SatAdd(sum.min, product.min), unbounded ? DimRange::kUnbounded : SatAdd(sum.max, product.max)};
  }
  return sum;
}

std::vector<std::string> Dim::symbols() const {
  std::set<std::string> names;
  Substitute([&](std::string_view name) -> std::optional<Dim> {
    names.emplace(name);
    return std::nullopt;
  });
  return {names.begin(), names.end()};
}

std::string_view Dim::symbol() const {
  if (is_constant() || expr_->terms.size() != 1) return {};
  const Term& t = expr_->terms[0];
  if (t.coefficient != 1 || t.atoms.size() != 1 || t.atoms[0]->kind != AtomKind::kSymbol) return {};
  return t.atoms[0]->text;
}

std::string Dim::ToString() const { return is_constant() ? std::to_string(value_) : expr_->text; }

namespace {
struct DimParser {
  std::string_view text;
  size_t pos = 0;
  int depth = 0;
  bool failed = false;

  Dim Fail() {
    failed = true;
    return 0;
  }
  // Sums are multiplied out: a short text must not become millions of terms.
  Dim Times(Dim a, Dim b) {
    std::vector<Term> sa, sb;
    return DimExpr::TermsOf(a, sa).size() * DimExpr::TermsOf(b, sb).size() <= 2048 ? a * b : Fail();
  }
  char Peek() {
    while (pos < text.size() && text[pos] == ' ') ++pos;
    return pos < text.size() ? text[pos] : '\0';
  }
  bool Eat(char c) {
    if (Peek() != c) return false;
    ++pos;
    return true;
  }
  Dim Sum() {
    if (++depth > 64) return Fail();
    Dim d = Eat('-') ? Dim(0) - Product() : Product();
    while (!failed) {
      if (Eat('+')) d = d + Product();
      else if (Eat('-')) d = d - Product();
      else break;
    }
    --depth;
    return d;
  }
  Dim Product() {
    Dim d = Primary();
    while (!failed && Eat('*')) d = Times(d, Primary());
    return d;
  }
  Dim Primary() {
    const char c = Peek();
    if (std::isdigit(static_cast<unsigned char>(c))) {
      int64_t v = 0;
      while (pos < text.size() && std::isdigit(static_cast<unsigned char>(text[pos])))
        if (__builtin_mul_overflow(v, int64_t{10}, &v) || __builtin_add_overflow(v, int64_t{text[pos++] - '0'}, &v)) return Fail();
      return v;
    }
    if (Eat('(')) {
      Dim d = Sum();
      return Eat(')') ? d : Fail();
    }
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      const size_t start = pos;
      while (pos < text.size() && (std::isalnum(static_cast<unsigned char>(text[pos])) || text[pos] == '_')) ++pos;
      const std::string_view name = text.substr(start, pos - start);
      if (!Eat('(')) return Dim::Symbol(name);
      const Dim a = Sum();
      if (failed || !Eat(',')) return Fail();
      const Dim b = Sum();
      if (failed || !Eat(')')) return Fail();
      if (name == "floordiv" && b != Dim(0)) return Dim::FloorDiv(a, b);
      if (name == "mod" && b != Dim(0)) return Dim::Mod(a, b);
      if (name == "min") return Dim::Min(a, b);
      if (name == "max") return Dim::Max(a, b);
    }
    return Fail();
  }
};
}  // namespace

Result<Dim> Dim::Parse(std::string_view text) {
  if (text.size() > 4096) return InvalidArgument("a dimension of ", text.size(), " characters is too long");
  int64_t integer = 0;  // also the least one, whose digits alone are too large
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), integer);
  if (error == std::errc() && last == text.data() + text.size()) return Dim(integer);
  DimParser p{text};
  const Dim d = p.Sum();
  if (p.failed || p.Peek() != '\0') return InvalidArgument("'", text, "' is not a dimension such as 4, s0 or 2*s0+1");
  return d;
}

std::optional<AffineDim> AsAffine(Dim d) {
  std::vector<std::string> symbols = d.symbols();
  // An operation such as min() may look affine in a few places.
  if (symbols.size() != 1 || d.ToString().find('(') != std::string::npos) return std::nullopt;
  const auto at = [&](int64_t x) { return d.Evaluate([x](std::string_view) { return std::optional(x); }).value_or(0); };
  const int64_t b = at(0);
  if (b > INT32_MAX || b < -INT32_MAX) return std::nullopt;
  const int64_t a = at(1) - b;
  if (a <= 0 || a > INT32_MAX || at(1000) != 1000 * a + b) return std::nullopt;
  return AffineDim{std::move(symbols[0]), a, b};
}

}  // namespace dovetail
