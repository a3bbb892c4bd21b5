#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/qnn/lowering.h"
#include "ops/log1p.h"
#include "ops/quantization.h"

namespace dovetail::qnn {
namespace {

// Channels last where all operands that are not constants exist so alone; a constant goes with them if its dims line up.
Order CommonOrder(Lowering& l, std::span<const ValueId> operands) {
  bool any = false;
  for (ValueId v : operands) {
    if (l.ConstantOf(v)) {
      if (l.type(v).rank() > 4) return Order::kPlain;
    } else if (l.OnlyChannelsLast(v) && l.type(v).rank() == 4) {
      any = true;
    } else {
      return Order::kPlain;
    }
  }
  return any ? Order::kChannelsLast : Order::kPlain;
}

void Same(Lowering& l, const Node& n, std::string_view op, size_t operands, const std::vector<QnnParam>& params = {}) {
  const std::span<const ValueId> data(n.operands.data(), operands);
  const Order order = CommonOrder(l, data);
  std::vector<Id> in;
  for (ValueId v : data) in.push_back(l.In(v, order));
  l.Op(op, in, {l.Out(n.results[0], order)}, params);
}

template <char const* Name>
void Unary(Lowering& l, const Node& n) {
  Same(l, n, Name, 1);
}
template <char const* Name>
void Binary(Lowering& l, const Node& n) {
  Same(l, n, Name, 2);
}

// Seen on the simulator of SDK 2.51: in place of a 16-bit product with one number, a softmax takes the other factor with its steps times that number, loses
// digits where those are small, and goes wrong below about 2e-6. It takes the product itself where the number is repeated along the last dim.
bool SoftmaxLosesSteps(Lowering& l, const Node& n, size_t number) {
  constexpr double kLeastStep = 1e-5;
  const Constant* c = l.ConstantOf(n.operands[number]);
  const ValueId other = n.operands[1 - number];
  if (!c || c->type.dtype != DType::kU16 || c->type.shape.numel() != Dim(1) || l.ConstantOf(other)) return false;
  if (l.type(other).shape != l.type(n.results[0]).shape) return false;
  uint16_t stored = 0;
  const std::vector<std::byte> data = l.DataOf(*c);
  std::memcpy(&stored, data.data(), std::min(data.size(), sizeof stored));
  const QnnType type = l.TypeOf(n.operands[number]);
  const double factor = static_cast<double>(DequantizeElement(stored, type.scale, type.zero_point));
  if (std::abs(factor) * static_cast<double>(l.TypeOf(other).scale) >= kLeastStep) return false;
  return std::any_of(l.graph().order.begin(), l.graph().order.end(), [&](NodeId id) {
    const Node& user = l.graph().node(id);
    return user.op == OpId::kSoftmax && user.operands[0] == n.results[0];
  });
}
void Product(Lowering& l, const Node& n) {
  for (size_t i = 0; i < 2; ++i) {
    if (!SoftmaxLosesSteps(l, n, i)) continue;
    const Id x = l.In(n.operands[1 - i]);
    const Constant& c = *l.ConstantOf(n.operands[i]);
    const uint32_t last = l.dims(x).back();
    const Id numbers = l.Static({last}, l.TypeOf(n.operands[i]), [&l, &c, last] {
      const std::vector<std::byte> one = l.DataOf(c);
      std::vector<std::byte> all;
      for (uint32_t k = 0; k < last; ++k) all.insert(all.end(), one.begin(), one.end());
      return all;
    });
    return l.Op("ElementWiseMultiply", {x, numbers}, {l.Out(n.results[0])});
  }
  Same(l, n, "ElementWiseMultiply", 2);
}

void Sum(Lowering& l, const Node& n) {
  if (GetAttr(n, "alpha").Number(1) != 1) return l.Fail("a sum with alpha");
  Same(l, n, n.op == OpId::kAdd ? "ElementWiseAdd" : "ElementWiseSubtract", 2);
}

// The greater or the lesser. Seen on the simulator of SDK 2.51: of bytes with one scale it overwrites an operand that others read, so those are compared and
// chosen from.
template <bool greater>
void Extreme(Lowering& l, const Node& n) {
  const Order order = CommonOrder(l, n.operands);
  const Id a = l.In(n.operands[0], order), b = l.In(n.operands[1], order);
  const QnnType type = l.TypeOf(n.results[0]);
  const bool same = type.quantized && Width(type.data_type) == 1 && l.qnn_type(a) == type && l.qnn_type(b) == type && l.dims(a) == l.dims(b);
  if (!same) return Same(l, n, greater ? "ElementWiseMaximum" : "ElementWiseMinimum", 2);
  if (a == b) return l.Bind(n.results[0], a, order);
  const Id chosen = l.Temp(l.dims(a), {abi::DataType::kBool8});
  l.Op(greater ? "ElementWiseGreater" : "ElementWiseLess", {a, b}, {chosen});
  l.Op("ElementWiseSelect", {chosen, a, b}, {l.Out(n.results[0], order)});
}

// A clamp of fixed point, by bounds as they are stored. Seen on the simulator of SDK 2.51: a ReluMinMax after a convolution, a sum or a product changes
// nothing in 16 bits, and in 8 bits where it has one bound.
void FixedClamp(Lowering& l, const Node& n, int64_t low, int64_t high) {
  const Order order = CommonOrder(l, n.operands);
  const Id x = l.In(n.operands[0], order);
  const QnnType type = l.qnn_type(x);
  const StoredRange range = RangeOf(type.data_type);
  const auto bound = [&](int64_t stored) {
    return l.Static({1}, type, [stored, width = Width(type.data_type)] {
      std::vector<std::byte> bytes(width);
      for (size_t i = 0; i < width; ++i) bytes[i] = static_cast<std::byte>(stored >> (8 * i));
      return bytes;
    });
  };
  if (low <= range.least && high >= range.most) return l.Bind(n.results[0], x, order);
  const bool both = low > range.least && high < range.most;
  const Id bounded = both ? l.Temp(l.dims(x), type) : l.Out(n.results[0], order);
  if (low > range.least) l.Op("ElementWiseMaximum", {x, bound(low)}, {bounded});
  if (high < range.most) l.Op("ElementWiseMinimum", {both ? bounded : x, bound(high)}, {both ? l.Out(n.results[0], order) : bounded});
}

void Clamp(Lowering& l, const Node& n) {
  double low = -3e38, high = 3e38;
  if (n.op == OpId::kHardtanh) {
    low = GetAttr(n, "min_val").Number();
    high = GetAttr(n, "max_val").Number();
  } else {
    if (const Attr& a = GetAttr(n, "min"); !a.is_none()) low = a.Number();
    if (const Attr& a = GetAttr(n, "max"); !a.is_none()) high = a.Number();
  }
  if (l.type(n.results[0]).dtype == DType::kI64 || l.type(n.results[0]).dtype == DType::kI32) return l.Fail("a clamp of integers");
  // What a fixed-point type can hold; a bound beyond it changes nothing.
  const QnnType t = l.TypeOf(n.results[0]);
  if (t.quantized) {
    const StoredRange range = RangeOf(t.data_type);
    low = std::max(low, static_cast<double>(range.least - t.zero_point) * static_cast<double>(t.scale));
    high = std::min(high, static_cast<double>(range.most - t.zero_point) * static_cast<double>(t.scale));
  }
  if (low > high) return l.Fail("a clamp whose least value is above its greatest");
  if (t.quantized) {
    const auto stored = [&](double bound) { return std::llround(bound / static_cast<double>(t.scale)) + t.zero_point; };
    return FixedClamp(l, n, stored(low), stored(high));
  }
  Same(l, n, "ReluMinMax", 1, {Float("min_value", low), Float("max_value", high)});
}

void Gelu(Lowering& l, const Node& n) { Same(l, n, "Gelu", 1); }

void Log(Lowering& l, const Node& n) {
  // Seen on the simulator of SDK 2.51: the logarithms of the larger numbers are wrong.
  if (l.TypeOf(n.operands[0]).data_type == abi::DataType::kUfixed16) return l.Fail("a logarithm in 16 bits of fixed point");
  Same(l, n, "ElementWiseLog", 1);
}

// In f16 a sum with 1 leaves little of a small number, so those near zero take the polynomial. For others log(1 + x) - log(1 + the nearest of those) comes on top;
// for these it is zero, which the logarithm of a quotient is not, seen on the simulator of SDK 2.51: 1 / 1 is not quite 1.
void Log1p(Lowering& l, const Node& n) {
  const Order order = CommonOrder(l, n.operands);
  const Id x = l.In(n.operands[0], order);
  const QnnType type = l.qnn_type(x);
  if (type.data_type != abi::DataType::kFloat32) return l.Fail("log1p of numbers that are not f32");
  const auto number = [&](double v) {
    return l.Static({1}, type, [v] { return Bytes(std::vector<float>{static_cast<float>(v)}); });
  };
  const auto combine = [&](std::string_view op, Id a, Id b) {
    const Id y = l.Temp(l.dims(x), type);
    l.Op(op, {a, b}, {y});
    return y;
  };
  const Id near = l.Temp(l.dims(x), type), one = number(1);
  const auto log_of_sum = [&](Id a) {
    const Id y = l.Temp(l.dims(x), type);
    l.Op("ElementWiseLog", {combine("ElementWiseAdd", a, one)}, {y});
    return y;
  };
  l.Op("ReluMinMax", {x}, {near}, {Float("min_value", kLog1pLeast), Float("max_value", kLog1pMost)});
  const Id s = combine("ElementWiseDivide", near, combine("ElementWiseAdd", near, number(2))), z = combine("ElementWiseMultiply", s, s);
  Id sum = number(kLog1pTerms[0]);
  for (size_t i = 1; i < kLog1pTerms.size(); ++i) sum = combine("ElementWiseAdd", combine("ElementWiseMultiply", z, sum), number(kLog1pTerms[i]));
  const Id rest = combine("ElementWiseSubtract", log_of_sum(x), log_of_sum(near));
  l.Op("ElementWiseAdd", {combine("ElementWiseMultiply", s, sum), rest}, {l.Out(n.results[0], order)});
}

void Power(Lowering& l, const Node& n) {
  if (GetAttr(n, "exponent").Number() != 2) return l.Fail("a power other than 2");
  const Order order = CommonOrder(l, n.operands);
  const Id x = l.In(n.operands[0], order);
  l.Op("ElementWiseMultiply", {x, x}, {l.Out(n.results[0], order)});
}

void Where(Lowering& l, const Node& n) { Same(l, n, "ElementWiseSelect", 3); }

bool IsFloat(abi::DataType t) { return t == abi::DataType::kFloat32 || t == abi::DataType::kFloat16; }

// QNN's Cast rounds floats to integers, and takes only the last bits of a number for a bool.
void ToDtype(Lowering& l, const Node& n) {
  const Order order = CommonOrder(l, n.operands);
  const Id x = l.In(n.operands[0], order);
  const QnnType from = l.qnn_type(x), to = l.TypeOf(n.results[0]);
  for (const QnnType& t : {from, to})
    if (!IsFloat(t.data_type) && t.data_type != abi::DataType::kInt32 && t.data_type != abi::DataType::kBool8)
      return l.Fail(StrCat("a conversion of ", Name(l.type(n.operands[0]).dtype), " to ", Name(l.type(n.results[0]).dtype)));
  if (from == to) return l.Bind(n.results[0], x, order);
  const Id y = l.Out(n.results[0], order);
  if (to.data_type == abi::DataType::kBool8)
    return l.Op("ElementWiseNotEqual", {x, l.Static({1}, from, [&] { return std::vector<std::byte>(Width(from.data_type)); })}, {y});
  if (!IsFloat(from.data_type) || to.data_type != abi::DataType::kInt32) return l.Op("Cast", {x}, {y});
  const Id magnitude = l.Temp(l.dims(x), from), whole = l.Temp(l.dims(x), from), sign = l.Temp(l.dims(x), from), truncated = l.Temp(l.dims(x), from);
  l.Op("ElementWiseAbs", {x}, {magnitude});
  l.Op("ElementWiseFloor", {magnitude}, {whole});
  l.Op("ElementWiseSign", {x}, {sign});
  l.Op("ElementWiseMultiply", {whole, sign}, {truncated});
  l.Op("Cast", {truncated}, {y});
}

void Quantization(Lowering& l, const Node& n) {
  const Order order = CommonOrder(l, n.operands);
  l.Op(n.op == OpId::kQuantize ? "Quantize" : "Dequantize", {l.In(n.operands[0], order)}, {l.Out(n.results[0], order)});
}

void Clone(Lowering& l, const Node& n) {
  const Order order = CommonOrder(l, n.operands);
  const Id x = l.In(n.operands[0], order);
  if (l.qnn_type(x) != l.TypeOf(n.results[0])) return l.Op("Convert", {x}, {l.Out(n.results[0], order)});
  l.Bind(n.results[0], x, order);
}

constexpr char kAbs[] = "ElementWiseAbs", kNeg[] = "ElementWiseNeg", kExp[] = "ElementWiseExp",
               kSqrt[] = "ElementWiseSquareRoot", kRsqrt[] = "ElementWiseRsqrt", kSin[] = "ElementWiseSin", kCos[] = "ElementWiseCos",
               kFloor[] = "ElementWiseFloor", kCeil[] = "ElementWiseCeil", kRound[] = "ElementWiseRound", kSign[] = "ElementWiseSign", kTanh[] = "Tanh",
               kSigmoid[] = "Sigmoid", kRelu[] = "Relu", kNot[] = "ElementWiseNot", kDiv[] = "ElementWiseDivide",
               kEq[] = "ElementWiseEqual", kNe[] = "ElementWiseNotEqual",
               kLt[] = "ElementWiseLess", kLe[] = "ElementWiseLessEqual", kGt[] = "ElementWiseGreater", kGe[] = "ElementWiseGreaterEqual",
               kAnd[] = "ElementWiseAnd", kOr[] = "ElementWiseOr";

}  // namespace

LowerFn FindElementwise(OpId op) {
  switch (op) {
    case OpId::kAbs: return Unary<kAbs>;
    case OpId::kNeg: return Unary<kNeg>;
    case OpId::kExp: return Unary<kExp>;
    case OpId::kLog: return Log;
    case OpId::kLog1p: return Log1p;
    case OpId::kSqrt: return Unary<kSqrt>;
    case OpId::kRsqrt: return Unary<kRsqrt>;
    case OpId::kSin: return Unary<kSin>;
    case OpId::kCos: return Unary<kCos>;
    case OpId::kFloor: return Unary<kFloor>;
    case OpId::kCeil: return Unary<kCeil>;
    case OpId::kRound: return Unary<kRound>;
    case OpId::kSign: return Unary<kSign>;
    case OpId::kTanh: return Unary<kTanh>;
    case OpId::kSigmoid: return Unary<kSigmoid>;
    case OpId::kRelu: return Unary<kRelu>;
    case OpId::kLogicalNot: return Unary<kNot>;
    case OpId::kGelu: return Gelu;
    case OpId::kHardtanh:
    case OpId::kClamp: return Clamp;
    case OpId::kAdd:
    case OpId::kSub: return Sum;
    case OpId::kMul: return Product;
    case OpId::kDiv: return Binary<kDiv>;
    case OpId::kMaximum: return Extreme<true>;
    case OpId::kMinimum: return Extreme<false>;
    case OpId::kEq: return Binary<kEq>;
    case OpId::kNe: return Binary<kNe>;
    case OpId::kLt: return Binary<kLt>;
    case OpId::kLe: return Binary<kLe>;
    case OpId::kGt: return Binary<kGt>;
    case OpId::kGe: return Binary<kGe>;
    case OpId::kLogicalAnd: return Binary<kAnd>;
    case OpId::kLogicalOr: return Binary<kOr>;
    case OpId::kPowTensorScalar: return Power;
    case OpId::kWhere: return Where;
    case OpId::kQuantize:
    case OpId::kDequantize: return Quantization;
    case OpId::kToDtype: return ToDtype;
    case OpId::kClone:
    case OpId::kRequantize: return Clone;
    default: return nullptr;
  }
}

}  // namespace dovetail::qnn
