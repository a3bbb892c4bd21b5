// The value of a non-tensor argument of an operator.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/dim.h"
#include "core/dtype.h"

namespace dovetail {

// Which alternative an argument holds follows from the operator's schema (ops/schema.h):
//   int, SymInt -> Dim; int[], SymInt[] -> std::vector<Dim>; float -> double; bool -> bool; str -> std::string;
//   float[] -> std::vector<double>; bool[] -> std::vector<bool>; ScalarType -> DType;
//   Scalar -> bool, Dim or double, as the user wrote it. std::monostate is None.
class Attr {
 public:
  using Value = std::variant<std::monostate, bool, Dim, double, std::string, std::vector<Dim>, std::vector<double>, std::vector<bool>, DType>;
  Attr() = default;
  Attr(bool v) : value_(v) {}                       // NOLINT: implicit by design
  Attr(Dim v) : value_(v) {}                        // NOLINT
  Attr(int64_t v) : value_(Dim(v)) {}               // NOLINT
  Attr(int v) : value_(Dim(v)) {}                   // NOLINT
  Attr(double v) : value_(v) {}                     // NOLINT
  Attr(std::string v) : value_(std::move(v)) {}     // NOLINT
  Attr(const char* v) : value_(std::string(v)) {}   // NOLINT
  Attr(std::vector<Dim> v) : value_(std::move(v)) {}     // NOLINT
  Attr(std::vector<double> v) : value_(std::move(v)) {}  // NOLINT
  Attr(std::vector<bool> v) : value_(std::move(v)) {}    // NOLINT
  Attr(DType v) : value_(v) {}                           // NOLINT
  static Attr Ints(std::initializer_list<int64_t> v) { return Attr(std::vector<Dim>(v.begin(), v.end())); }

  bool is_none() const { return std::holds_alternative<std::monostate>(value_); }
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(value_);
  }
  template <class T>
  const T* get() const {
    return std::get_if<T>(&value_);
  }
  template <class T>
  T* get() {
    return std::get_if<T>(&value_);
  }
  const Value& value() const { return value_; }

  // Reading what the schema guarantees (the verifier checks kinds). None and symbolic dims read as `fallback`.
  bool Bool(bool fallback = false) const { return is<bool>() ? *get<bool>() : fallback; }
  int64_t Int(int64_t fallback = 0) const { return is<Dim>() && get<Dim>()->is_constant() ? get<Dim>()->value() : fallback; }
  Dim SymInt(Dim fallback = 0) const { return is<Dim>() ? *get<Dim>() : fallback; }
  DType Type(DType fallback = DType::kNone) const { return is<DType>() ? *get<DType>() : fallback; }
  const std::vector<Dim>& Dims() const;
  // A Scalar or float as a double.
  double Number(double fallback = 0) const;
  // Element i of an int list; a list of one element stands for any i (kernel_size=3 for [3, 3]); missing: fallback.
  int64_t IntAt(size_t i, int64_t fallback = 0) const;

  // "3", "1.5", "true", "\"text\"", "[1,s0]", "f32", "none".
  std::string ToString() const;
  friend bool operator==(const Attr&, const Attr&) = default;

 private:
  Value value_;
};

// Shortest text that reads back as the same double: "0.1", "1e-05", "inf", "-inf", "nan"; always with '.', 'e' or a letter.
std::string FormatDouble(double v);

}  // namespace dovetail
