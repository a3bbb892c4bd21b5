#include "passes/stock_quantization.h"

#include <algorithm>

#include "ops/quantization.h"

namespace dovetail {
namespace {

using V = Result<ValueId>;

V View(Builder& b, ValueId x, const Shape& shape) { return b.Emit(OpId::kView, {x}, {{"size", std::vector<Dim>(shape.begin(), shape.end())}}); }
V Cast(Builder& b, ValueId x, DType to) { return b.Emit(OpId::kToDtype, {x}, {{"out_dtype", to}}); }
// x op number
V With(Builder& b, OpId op, ValueId x, double number) { return b.Emit(op, {x, b.Splat(number, b.type(x).dtype)}); }
V Clamp(Builder& b, ValueId x, double min, double max) { return b.Emit(OpId::kClamp, {x}, {{"min", min}, {"max", max}}); }

// To the nearest integer, ties to even, of f64 below 2^51: what is added leaves no bits for a fraction.
V Round(Builder& b, ValueId x) {
  constexpr double kNoFraction = 6755399441055744.0;  // 1.5 * 2^52
  DT_ASSIGN_OR_RETURN(const ValueId shifted, With(b, OpId::kAdd, x, kNoFraction));
  return With(b, OpId::kSub, shifted, kNoFraction);
}

// QuantizeElement; scale and zero_point are f64 that broadcast to x.
V QuantizeWith(Builder& b, ValueId x, ValueId scale, ValueId zero_point, DType to) {
  const IntegerRange range = RangeOf(to);
  DT_ASSIGN_OR_RETURN(const ValueId wide, Cast(b, x, DType::kF64));
  DT_ASSIGN_OR_RETURN(const ValueId steps, b.Emit(OpId::kDiv, {wide, scale}));
  DT_ASSIGN_OR_RETURN(const ValueId is_number, b.Emit(OpId::kEq, {steps, steps}));
  DT_ASSIGN_OR_RETURN(const ValueId number, b.Emit(OpId::kWhere, {is_number, steps, b.Splat(0, DType::kF64)}));
  constexpr double kFar = 8589934592.0;  // past every range, whatever the zero point
  DT_ASSIGN_OR_RETURN(const ValueId near, Clamp(b, number, -kFar, kFar));
  DT_ASSIGN_OR_RETURN(const ValueId rounded, Round(b, near));
  DT_ASSIGN_OR_RETURN(const ValueId shifted, b.Emit(OpId::kAdd, {rounded, zero_point}));
  DT_ASSIGN_OR_RETURN(const ValueId clamped, Clamp(b, shifted, range.min, range.max));
  return Cast(b, clamped, to);
}

V Dequantize(Builder& b, ValueId q, float scale, int64_t zero_point) {
  ValueId x = q;
  if (ByteSize(b.type(q).dtype) == 4 && zero_point) {  // a float would not hold it, and the difference may not fit
    DT_ASSIGN_OR_RETURN(x, Cast(b, x, DType::kF64));
    DT_ASSIGN_OR_RETURN(x, With(b, OpId::kSub, x, static_cast<double>(zero_point)));
    zero_point = 0;
  }
  DT_ASSIGN_OR_RETURN(x, Cast(b, x, DType::kF32));
  if (zero_point) {
    DT_ASSIGN_OR_RETURN(x, With(b, OpId::kSub, x, static_cast<double>(zero_point)));
  }
  return With(b, OpId::kMul, x, static_cast<double>(scale));
}

// AsymmetricRow of the last `row_dims` dims of x, step by step; then the elements.
Result<std::vector<ValueId>> QuantizeDynamic(Builder& b, ValueId x, size_t row_dims) {
  const Shape shape = b.type(x).shape;
  std::vector<Dim> dims;
  for (size_t i = shape.rank() - row_dims; i < shape.rank(); ++i) dims.push_back(Dim(static_cast<int64_t>(i)));
  const auto most = [&](ValueId of) -> V {
    DT_ASSIGN_OR_RETURN(const ValueId m, b.Emit(OpId::kAmax, {of}, {{"dim", dims}, {"keepdim", true}}));
    return With(b, OpId::kMaximum, m, 0);
  };
  DT_ASSIGN_OR_RETURN(const ValueId high, most(x));
  DT_ASSIGN_OR_RETURN(const ValueId negated, b.Emit(OpId::kNeg, {x}));
  DT_ASSIGN_OR_RETURN(const ValueId depth, most(negated));
  DT_ASSIGN_OR_RETURN(const ValueId span, b.Emit(OpId::kAdd, {high, depth}));
  DT_ASSIGN_OR_RETURN(const ValueId flat, With(b, OpId::kEq, span, 0));
  DT_ASSIGN_OR_RETURN(const ValueId quotient, b.Emit(OpId::kDiv, {b.Splat(255, DType::kF32), span}));
  DT_ASSIGN_OR_RETURN(const ValueId steps, b.Emit(OpId::kWhere, {flat, b.Splat(1, DType::kF32), quotient}));
  DT_ASSIGN_OR_RETURN(const ValueId high_steps, b.Emit(OpId::kMul, {high, steps}));
  DT_ASSIGN_OR_RETURN(const ValueId depth_steps, b.Emit(OpId::kMul, {depth, steps}));
  DT_ASSIGN_OR_RETURN(const ValueId from_low, b.Emit(OpId::kSub, {b.Splat(-128, DType::kF32), depth_steps}));
  DT_ASSIGN_OR_RETURN(const ValueId from_high, With(b, OpId::kAdd, high_steps, 127));
  DT_ASSIGN_OR_RETURN(const ValueId errors, b.Emit(OpId::kAdd, {from_low, from_high}));
  DT_ASSIGN_OR_RETURN(const ValueId low_is_nearer, With(b, OpId::kGt, errors, 0));
  DT_ASSIGN_OR_RETURN(const ValueId at_low, With(b, OpId::kAdd, depth_steps, -128));
  DT_ASSIGN_OR_RETURN(const ValueId at_high, b.Emit(OpId::kSub, {b.Splat(127, DType::kF32), high_steps}));
  DT_ASSIGN_OR_RETURN(const ValueId nearer, b.Emit(OpId::kWhere, {low_is_nearer, at_low, at_high}));
  DT_ASSIGN_OR_RETURN(const ValueId clamped, Clamp(b, nearer, -128, 127));
  DT_ASSIGN_OR_RETURN(const ValueId wide, Cast(b, clamped, DType::kF64));
  DT_ASSIGN_OR_RETURN(const ValueId zero_point, Round(b, wide));
  DT_ASSIGN_OR_RETURN(const ValueId scale, b.Emit(OpId::kReciprocal, {steps}));
  DT_ASSIGN_OR_RETURN(const ValueId wide_scale, Cast(b, scale, DType::kF64));
  DT_ASSIGN_OR_RETURN(const ValueId q, QuantizeWith(b, x, wide_scale, zero_point, DType::kI8));
  const Shape rows(shape.dims().first(shape.rank() - row_dims));
  DT_ASSIGN_OR_RETURN(const ValueId scales, View(b, scale, rows));
  DT_ASSIGN_OR_RETURN(const ValueId integers, Cast(b, zero_point, DType::kI32));
  DT_ASSIGN_OR_RETURN(const ValueId zero_points, View(b, integers, rows));
  return std::vector<ValueId>{q, scales, zero_points};
}

// The value of an input that is f32, or quantize_dynamic's three.
V Input(Builder& b, ValueId x, ValueId scale, ValueId zero_point) {
  if (scale == kNone) return x;
  Shape column = b.type(scale).shape;
  while (column.rank() < b.type(x).rank()) column.push_back(1);
  DT_ASSIGN_OR_RETURN(const ValueId integers, Cast(b, x, DType::kF32));
  DT_ASSIGN_OR_RETURN(const ValueId zeros, Cast(b, zero_point, DType::kF32));
  DT_ASSIGN_OR_RETURN(const ValueId zero_column, View(b, zeros, column));
  DT_ASSIGN_OR_RETURN(const ValueId shifted, b.Emit(OpId::kSub, {integers, zero_column}));
  DT_ASSIGN_OR_RETURN(const ValueId scale_column, View(b, scale, column));
  return b.Emit(OpId::kMul, {shifted, scale_column});
}

// f32[n, 2 * bytes] of u8[n, bytes] with bf16[n, blocks]. A byte over 16, made an integer again, is its high nibble.
V Nibbles(Builder& b, ValueId bytes, ValueId scales) {
  const Dim rows = b.type(bytes).shape[0], pairs = b.type(bytes).shape[1], blocks = b.type(scales).shape[1];
  DT_ASSIGN_OR_RETURN(const ValueId both, Cast(b, bytes, DType::kF32));
  DT_ASSIGN_OR_RETURN(const ValueId quotient, With(b, OpId::kMul, both, 1.0 / 16));
  DT_ASSIGN_OR_RETURN(const ValueId high_byte, Cast(b, quotient, DType::kU8));
  DT_ASSIGN_OR_RETURN(const ValueId high, Cast(b, high_byte, DType::kF32));
  DT_ASSIGN_OR_RETURN(const ValueId of_high, With(b, OpId::kMul, high, 16));
  DT_ASSIGN_OR_RETURN(const ValueId low, b.Emit(OpId::kSub, {both, of_high}));
  DT_ASSIGN_OR_RETURN(const ValueId low_column, View(b, low, {rows, pairs, 1}));
  DT_ASSIGN_OR_RETURN(const ValueId high_column, View(b, high, {rows, pairs, 1}));
  DT_ASSIGN_OR_RETURN(const ValueId columns, b.Emit(OpId::kCat, {low_column, high_column}, {{"dim", 2}}));
  DT_ASSIGN_OR_RETURN(const ValueId in_blocks, View(b, columns, {rows, blocks, Dim(pairs.value() * 2 / blocks.value())}));
  DT_ASSIGN_OR_RETURN(const ValueId integers, With(b, OpId::kSub, in_blocks, 8));
  DT_ASSIGN_OR_RETURN(const ValueId factors, Cast(b, scales, DType::kF32));
  DT_ASSIGN_OR_RETURN(const ValueId factor_column, View(b, factors, {rows, blocks, 1}));
  DT_ASSIGN_OR_RETURN(const ValueId values, b.Emit(OpId::kMul, {integers, factor_column}));
  return View(b, values, {rows, Dim(pairs.value() * 2)});
}

V Embedding(Builder& b, ValueId weight, ValueId scale, ValueId indices) {
  Shape shape = b.type(indices).shape;
  DT_ASSIGN_OR_RETURN(const ValueId flat, View(b, indices, {shape.numel()}));
  DT_ASSIGN_OR_RETURN(const ValueId rows, b.Emit(OpId::kEmbedding, {weight, flat}));
  ValueId values;
  if (b.type(weight).dtype == DType::kU8) {
    DT_ASSIGN_OR_RETURN(const ValueId scales, b.Emit(OpId::kEmbedding, {scale, flat}));
    DT_ASSIGN_OR_RETURN(values, Nibbles(b, rows, scales));
  } else {
    DT_ASSIGN_OR_RETURN(const ValueId integers, Cast(b, rows, DType::kF32));
    DT_ASSIGN_OR_RETURN(const ValueId scales, b.Emit(OpId::kIndex, {scale, flat}));
    DT_ASSIGN_OR_RETURN(const ValueId column, View(b, scales, {shape.numel(), 1}));
    DT_ASSIGN_OR_RETURN(values, b.Emit(OpId::kMul, {integers, column}));
  }
  shape.push_back(b.type(values).shape[1]);
  return View(b, values, shape);
}

V Linear(Builder& b, const std::vector<ValueId>& o) {
  DT_ASSIGN_OR_RETURN(ValueId x, Input(b, o[0], o[1], o[2]));
  if (b.type(x).rank() == 1) {  // the stock linear takes no vector
    DT_ASSIGN_OR_RETURN(x, View(b, x, {Dim(1), b.type(x).shape[0]}));
    std::vector<ValueId> row = o;
    row[0] = x;
    row[1] = row[2] = kNone;
    DT_ASSIGN_OR_RETURN(const ValueId y, Linear(b, row));
    return View(b, y, {b.type(y).shape[1]});
  }
  if (b.type(o[3]).dtype == DType::kU8) {
    DT_ASSIGN_OR_RETURN(const ValueId weight, Nibbles(b, o[3], o[4]));
    return b.Emit(OpId::kLinear, {x, weight, o[5]});
  }
  DT_ASSIGN_OR_RETURN(const ValueId weight, Cast(b, o[3], DType::kF32));
  DT_ASSIGN_OR_RETURN(const ValueId product, b.Emit(OpId::kLinear, {x, weight, kNone}));
  DT_ASSIGN_OR_RETURN(const ValueId scaled, b.Emit(OpId::kMul, {product, o[4]}));
  return o[5] == kNone ? V(scaled) : b.Emit(OpId::kAdd, {scaled, o[5]});
}

V Convolution(Builder& b, const std::vector<ValueId>& o, std::vector<Attr> attrs) {
  DT_ASSIGN_OR_RETURN(const ValueId x, Input(b, o[0], o[1], o[2]));
  DT_ASSIGN_OR_RETURN(const ValueId weight, Cast(b, o[3], DType::kF32));
  DT_ASSIGN_OR_RETURN(const std::vector<ValueId> product, b.EmitWith(OpId::kConvolution, {x, weight, kNone}, std::move(attrs)));
  Shape channels = b.type(o[4]).shape;
  while (channels.rank() + 1 < b.type(x).rank()) channels.push_back(1);
  DT_ASSIGN_OR_RETURN(const ValueId scale, View(b, o[4], channels));
  DT_ASSIGN_OR_RETURN(const ValueId scaled, b.Emit(OpId::kMul, {product[0], scale}));
  if (o[5] == kNone) return scaled;
  DT_ASSIGN_OR_RETURN(const ValueId bias, View(b, o[5], channels));
  return b.Emit(OpId::kAdd, {scaled, bias});
}

}  // namespace

Result<Replacement> DecomposeQuantized(RewriteContext& c, NodeId id) {
  const Node& n = c.graph.node(id);
  const std::vector<ValueId> o = n.operands;
  Builder& b = c.builder;
  V v = kNone;
  switch (n.op) {
    case OpId::kQuantize: {
      const float scale = static_cast<float>(GetAttr(n, "scale").Number());
      const double zero_point = GetAttr(n, "zero_point").Number();
      const DType to = b.type(n.results[0]).dtype;
      const ValueId scales = b.Splat(static_cast<double>(scale), DType::kF64), zero_points = b.Splat(zero_point, DType::kF64);
      v = QuantizeWith(b, o[0], scales, zero_points, to);
      break;
    }
    case OpId::kDequantize: v = Dequantize(b, o[0], static_cast<float>(GetAttr(n, "scale").Number()), GetAttr(n, "zero_point").Int()); break;
    case OpId::kQuantizeDynamic: {
      DT_ASSIGN_OR_RETURN(std::vector<ValueId> all, QuantizeDynamic(b, o[0], static_cast<size_t>(GetAttr(n, "num_nonbatch_dims").Int(1))));
      return Replacement(std::move(all));
    }
    case OpId::kQuantizedEmbedding: v = Embedding(b, o[0], o[1], o[2]); break;
    case OpId::kQuantizedLinear: v = Linear(b, o); break;
    case OpId::kQuantizedConvolution: v = Convolution(b, o, std::vector<Attr>(n.attrs)); break;
    default: return Replacement();
  }
  if (!v.ok()) return std::move(v).status();
  return Replacement(std::vector<ValueId>{*v});
}

}  // namespace dovetail
