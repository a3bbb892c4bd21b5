// Python's arithmetic on numbers, strings and lists.
#include <cmath>

#include "llm/jinja_eval.h"

namespace dovetail::jinja {
namespace {
constexpr uint64_t kMaxText = 64 << 20;

Result<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return OutOfRange("a power is too large");
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return OutOfRange("a power is too large");
  }
  return Value::Int(result);
}

Result<Value> Integers(char op, bool twice, int64_t a, int64_t b) {
  int64_t out = 0;
  bool overflow = false;
  switch (op) {
    case '+': overflow = __builtin_add_overflow(a, b, &out); break;
    case '-': overflow = __builtin_sub_overflow(a, b, &out); break;
    case '*':
      if (twice) return IntegerPower(a, b);
      overflow = __builtin_mul_overflow(a, b, &out);
      break;
    default:
      if (b == 0) return InvalidArgument("division by zero");
      if (op == '/' && !twice) return Value::Float(static_cast<double>(a) / static_cast<double>(b));
      if (b == -1) {  // INT64_MIN / -1 does not fit
        if (op == '%') return Value::Int(0);
        overflow = __builtin_sub_overflow(int64_t{0}, a, &out);
        break;
      }
      {
        const bool down = a % b != 0 && (a % b < 0) != (b < 0);  // Python rounds down
        out = op == '%' ? a % b + (down ? b : 0) : a / b - (down ? 1 : 0);
      }
  }
  if (overflow) return OutOfRange("an integer is too large");
  return Value::Int(out);
}

Result<Value> Floats(char op, bool twice, double a, double b) {
  switch (op) {
    case '+': return Value::Float(a + b);
    case '-': return Value::Float(a - b);
    case '*': return Value::Float(twice ? std::pow(a, b) : a * b);
    default:
      if (b == 0) return InvalidArgument("division by zero");
      if (op == '/') return Value::Float(twice ? std::floor(a / b) : a / b);
      return Value::Float(a - std::floor(a / b) * b);
  }
}

Result<Value> Repeat(const std::string& text, int64_t count) {
  if (count < 0) count = 0;
  if (!text.empty() && static_cast<uint64_t>(count) > kMaxText / text.size()) return OutOfRange("a repeated string is too long");
  std::string out;
  for (int64_t i = 0; i < count && !text.empty(); ++i) out += text;
  return Value::Text(std::move(out));
}
}  // namespace

Result<Value> Arithmetic(std::string_view op, const Value& a, const Value& b) {
  int64_t i, j;
  double x, y;
  if (a.integer(&i) && b.integer(&j)) return Integers(op[0], op.size() == 2, i, j);
  if (a.number(&x) && b.number(&y)) return Floats(op[0], op.size() == 2, x, y);
  if (op == "+" && a.text() && b.text()) {
    if (a.weight() + b.weight() > kMaxText) return OutOfRange("a string is too long");
    return Value::Text(*a.text() + *b.text());
  }
  if (op == "+" && a.list() && b.list()) {
    if (a.weight() + b.weight() > kMaxText) return OutOfRange("a list is too long");
    std::vector<Value> items = a.list()->items;
    items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
    return MakeList(std::move(items));
  }
  if (op == "*" && a.text() && b.integer(&j)) return Repeat(*a.text(), j);
  if (op == "*" && b.text() && a.integer(&i)) return Repeat(*b.text(), i);
  if (op == "%" && a.text()) return Unsupported("formatting a string with % is not supported: use ~");
  for (const Value* v : {&a, &b}) {
    if (const Undefined* u = v->as<Undefined>()) return InvalidArgument("'", u->name ? *u->name : std::string("a value"), "' is undefined in '", op, "'");
  }
  return InvalidArgument("'", op, "' does not take a ", a.type(), " and a ", b.type());
}

}  // namespace dovetail::jinja
