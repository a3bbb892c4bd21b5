// A dimension: a constant, or a symbolic integer expression over named symbols ("s0", "2*s0+3", "floordiv(s0+1,2)").
//
// Expressions are polynomials in canonical form over symbols and over the operations floordiv, mod, min and max, interned for
// the life of the process: a Dim is a small value, == is equality of the canonical forms, and copies share one expression.
// Arithmetic on constants never allocates. Overflow saturates. Thread safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace dovetail {

struct DimExpr;

// Inclusive bounds; kUnbounded as max means no upper bound known.
struct DimRange {
  static constexpr int64_t kUnbounded = INT64_MAX;
  int64_t min = 0, max = kUnbounded;
  friend bool operator==(const DimRange&, const DimRange&) = default;
};
using SymbolRanges = std::map<std::string, DimRange, std::less<>>;
// Value of a symbol, or nullopt when it is not known.
using SymbolValues = std::function<std::optional<int64_t>(std::string_view symbol)>;

class Dim {
 public:
  constexpr Dim() = default;
  constexpr Dim(int64_t value) : value_(value) {}  // NOLINT: implicit by design
  constexpr Dim(int value) : value_(value) {}      // NOLINT: implicit by design
  // `name` is an identifier.
  static Dim Symbol(std::string_view name);

  bool is_constant() const { return expr_ == nullptr; }
  // Only of a constant.
  int64_t value() const { return value_; }
  std::optional<int64_t> constant() const { return is_constant() ? std::optional(value_) : std::nullopt; }
  // Names of the symbols inside, sorted.
  std::vector<std::string> symbols() const;
  // The symbol's name if this is exactly one symbol, else empty.
  std::string_view symbol() const;

  // nullopt when a symbol has no value.
  std::optional<int64_t> Evaluate(const SymbolValues& values) const;
  // Replaces symbols by what `replace` gives (nullopt keeps the symbol).
  Dim Substitute(const std::function<std::optional<Dim>(std::string_view)>& replace) const;
  // Conservative bounds; symbols missing from `ranges` are in [0, unbounded].
  DimRange Bounds(const SymbolRanges& ranges) const;

  std::string ToString() const;
  // The inverse of ToString: + - * ( ), integers, identifiers, floordiv(a,b), mod(a,b), min(a,b), max(a,b).
  static Result<Dim> Parse(std::string_view text);

  friend bool operator==(const Dim&, const Dim&) = default;
  friend Dim operator+(Dim a, Dim b);
  friend Dim operator-(Dim a, Dim b);
  friend Dim operator*(Dim a, Dim b);
  // Python's // and % (towards minus infinity). A zero constant divisor gives 0: callers check it first.
  static Dim FloorDiv(Dim a, Dim b);
  static Dim Mod(Dim a, Dim b);
  static Dim Min(Dim a, Dim b);
  static Dim Max(Dim a, Dim b);
  // Quotient if the polynomials divide without rest, else nullopt.
  static std::optional<Dim> DivideExact(Dim a, Dim b);

 private:
  friend struct DimExpr;
  int64_t value_ = 0;
  const DimExpr* expr_ = nullptr;
};

// d = a * symbol + b.
struct AffineDim {
  std::string symbol;
  int64_t a, b;
};
// nullopt unless `d` is of that form with 0 < a <= 2^31 - 1 and |b| <= 2^31 - 1.
std::optional<AffineDim> AsAffine(Dim d);

}  // namespace dovetail
