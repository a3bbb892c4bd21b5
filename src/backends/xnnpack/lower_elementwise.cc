#include <algorithm>
#include <cmath>

#include "backends/xnnpack/lowering.h"
#include "ops/log1p.h"

namespace dovetail::xnnpack {
namespace {

// Keeps a value that exists with channels last in that order.
template <class F>
void MapUnary(Lowering& l, const Node& n, F&& make) {
  const Order order = l.OnlyChannelsLast(n.operands[0]) ? Order::kChannelsLast : Order::kPlain;
  l.Bind(n.results[0], make(l.Operand(n.operands[0], order)), order);
}

template <Kind kKind>
void Unary(Lowering& l, const Node& n) {
  MapUnary(l, n, [&](Id x) { return l.Unary(kKind, x, l.TypeOf(n.results[0])); });
}

void Reciprocal(Lowering& l, const Node& n) {
  MapUnary(l, n, [&](Id x) { return l.Binary(Kind::XNNDiv, l.Number(1), x); });
}

// XNNPACK's own reciprocal square root gives NaN for 0 in place of infinity.
Id InverseRoot(Lowering& l, Id x) { return l.Binary(Kind::XNNDiv, l.Number(1), l.Unary(Kind::XNNSquareRoot, x)); }
void Rsqrt(Lowering& l, const Node& n) {
  MapUnary(l, n, [&](Id x) { return InverseRoot(l, x); });
}

// XNNPACK's logarithms near 1 have few right digits, so numbers near zero take the polynomial. For others log((1 + x) / (1 + the nearest of those)) comes on top;
// for these it is log(1) = 0.
void Log1p(Lowering& l, const Node& n) {
  MapUnary(l, n, [&](Id x) {
    const Id near = l.Clamp(x, kLog1pLeast, kLog1pMost), s = l.Binary(Kind::XNNDiv, near, l.Add(near, l.Number(2))), z = l.Unary(Kind::XNNSquare, s);
    Id sum = l.Number(kLog1pTerms[0]);
    for (size_t i = 1; i < kLog1pTerms.size(); ++i) sum = l.Add(l.Mul(z, sum), l.Number(kLog1pTerms[i]));
    const Id one = l.Number(1), rest = l.Unary(Kind::XNNLog, l.Binary(Kind::XNNDiv, l.Add(x, one), l.Add(near, one)));
    return l.Add(l.Mul(s, sum), rest);
  });
}

void Relu(Lowering& l, const Node& n) {
  MapUnary(l, n, [&](Id x) { return l.Clamp(x, 0, kInfinity); });
}

void Silu(Lowering& l, const Node& n) {
  MapUnary(l, n, [&](Id x) { return l.Mul(x, l.Unary(Kind::XNNSigmoid, x)); });
}

void Gelu(Lowering& l, const Node& n) {
  const std::string* approximate = GetAttr(n, "approximate").get<std::string>();
  if (!approximate || *approximate == "none") return Unary<Kind::XNNGelu>(l, n);
  if (*approximate != "tanh") return l.Fail("a gelu of an unknown approximation");
  // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  MapUnary(l, n, [&](Id x) {
    const Id cube = l.Mul(l.Mul(l.Unary(Kind::XNNSquare, x), x), l.Number(0.044715));
    const Id inner = l.Unary(Kind::XNNTanh, l.Mul(l.Add(x, cube), l.Number(std::sqrt(2 / M_PI))));
    return l.Mul(l.Mul(x, l.Number(0.5)), l.Add(inner, l.Number(1)));
  });
}

void Clamp(Lowering& l, const Node& n) {
  const bool hardtanh = n.op == OpId::kHardtanh;
  const double min = GetAttr(n, hardtanh ? "min_val" : "min").Number(-kInfinity),
               max = GetAttr(n, hardtanh ? "max_val" : "max").Number(kInfinity);
  MapUnary(l, n, [&](Id x) { return l.Clamp(x, min, max); });
}

void Pow(Lowering& l, const Node& n) {
  const double exponent = GetAttr(n, "exponent").Number();
  MapUnary(l, n, [&](Id x) {
    if (exponent == 1) return x;
    if (exponent == 2) return l.Unary(Kind::XNNSquare, x);
    if (exponent == 3) return l.Mul(l.Unary(Kind::XNNSquare, x), x);
    if (exponent == 0.5) return l.Unary(Kind::XNNSquareRoot, x);
    if (exponent == -0.5) return InverseRoot(l, x);
    if (exponent == -1) return l.Binary(Kind::XNNDiv, l.Number(1), x);
    l.Fail(StrCat("a power of ", FormatDouble(exponent), "; only 1, 2, 3, 0.5, -0.5 and -1 are supported"));
    return x;
  });
}

bool IsOneElement(const Shape& s) { return s.numel() == Dim(1); }

// The operand for a result of that rank with channels last; kNoId if it cannot be had without turning it in the graph.
Id ChannelsLastOperand(Lowering& l, ValueId v, size_t rank) {
  const Shape& s = l.type(v).shape;
  if (s.rank() == rank) return l.Operand(v, Order::kChannelsLast);
  if (IsOneElement(s)) return l.Operand(v);
  // [C,1,1] beside [N,C,H,W]
  if (s.rank() + 1 == rank && s[0].is_constant() && s.numel() == s[0]) return l.Reshape(l.Operand(v), Shape{s[0]});
  return kNoId;
}

struct Pair {
  Id a, b;
  Order order;
};

Pair BinaryOperands(Lowering& l, const Node& n) {
  const size_t rank = l.type(n.results[0]).rank();
  const ValueId a = n.operands[0], b = n.operands[1];
  if ((rank == 3 || rank == 4) && (l.OnlyChannelsLast(a) || l.OnlyChannelsLast(b))) {
    const Id x = ChannelsLastOperand(l, a, rank), y = ChannelsLastOperand(l, b, rank);
    if (x != kNoId && y != kNoId) return {x, y, Order::kChannelsLast};
  }
  return {l.Operand(a), l.Operand(b), Order::kPlain};
}

template <Kind kKind>
void Binary(Lowering& l, const Node& n) {
  const Pair p = BinaryOperands(l, n);
  l.Bind(n.results[0], l.Binary(kKind, p.a, p.b, l.TypeOf(n.results[0])), p.order);
}

template <Kind kKind>
void AddSub(Lowering& l, const Node& n) {
  Pair p = BinaryOperands(l, n);
  if (const double alpha = GetAttr(n, "alpha").Number(1); alpha != 1) p.b = l.Mul(p.b, l.Number(alpha));
  l.Bind(n.results[0], l.Binary(kKind, p.a, p.b, l.TypeOf(n.results[0])), p.order);
}

void SiluMul(Lowering& l, const Node& n) {
  const Pair p = BinaryOperands(l, n);
  l.Bind(n.results[0], l.Mul(l.Mul(p.a, l.Unary(Kind::XNNSigmoid, p.a)), p.b), p.order);
}

}  // namespace

LowerFn FindElementwise(OpId op) {
  switch (op) {
    case OpId::kAbs: return Unary<Kind::XNNAbs>;
    case OpId::kNeg: return Unary<Kind::XNNNegate>;
    case OpId::kExp: return Unary<Kind::XNNExp>;
    case OpId::kLog: return Unary<Kind::XNNLog>;
    case OpId::kLog1p: return Log1p;
    case OpId::kSqrt: return Unary<Kind::XNNSquareRoot>;
    case OpId::kRsqrt: return Rsqrt;
    case OpId::kReciprocal: return Reciprocal;
    case OpId::kSin: return Unary<Kind::XNNSin>;
    case OpId::kCos: return Unary<Kind::XNNCos>;
    case OpId::kFloor: return Unary<Kind::XNNFloor>;
    case OpId::kCeil: return Unary<Kind::XNNCeiling>;
    case OpId::kTanh: return Unary<Kind::XNNTanh>;
    case OpId::kSigmoid: return Unary<Kind::XNNSigmoid>;
    case OpId::kRelu: return Relu;
    case OpId::kGelu: return Gelu;
    case OpId::kSilu: return Silu;
    case OpId::kHardtanh:
    case OpId::kClamp: return Clamp;
    case OpId::kAdd: return AddSub<Kind::XNNAdd>;
    case OpId::kSub: return AddSub<Kind::XNNSubtract>;
    case OpId::kMul: return Binary<Kind::XNNMultiply>;
    case OpId::kDiv: return Binary<Kind::XNNDiv>;
    case OpId::kMaximum: return Binary<Kind::XNNMaximum>;
    case OpId::kMinimum: return Binary<Kind::XNNMinimum>;
    case OpId::kPowTensorScalar: return Pow;
    case OpId::kSiluMul: return SiluMul;
    default: return nullptr;
  }
}

}  // namespace dovetail::xnnpack
