// Layers of models that were quantized elsewhere. A layer computes with real numbers that dequantize gives, or spells out its integers:
//   linear(x, dequantize_affine(W, scale), bias)                        PT2E, torchao's intx configurations
//   x = dequantize_affine(quantize_affine(y, choose_qparams_affine(y))) before it: dynamically quantized
//   ((q @ W^T) as f32) * scale of the rows of q * scale of the rows of W torchao's Int8DynamicActivationInt8WeightConfig
//   (x @ (W^T as f32)) * scale of the rows of W                         torchao's Int8WeightOnlyConfig
#include <algorithm>

#include "passes/match.h"
#include "passes/recover_quantized.h"
#include "passes/stored_weights.h"

namespace dovetail {
namespace {

// v, or what it views; the view keeps the last dim.
ValueId BeforeView(const Graph& g, ValueId v) {
  const Node* view = g.producer_if(v, OpId::kView);
  if (!view) return v;
  const Shape &from = g.type(view->operands[0]).shape, &to = g.type(v).shape;
  return !from.empty() && !to.empty() && from.back() == to.back() ? view->operands[0] : v;
}

bool IsWhole(const std::vector<Dim>& block, const Shape& shape, size_t first) {
  for (size_t d = first; d < shape.rank(); ++d)
    if (block[d] != shape[d]) return false;
  return true;
}

// A range of i8, all of it or without its least number.
bool IsI8(const Node& n) {
  const int64_t min = GetAttr(n, "quant_min").Int(), max = GetAttr(n, "quant_max").Int();
  return (min == -128 || min == -127) && max == 127;
}

// x if `q` = quantize_affine(x) to i8 with parameters that choose_qparams_affine finds in x, by rows of the last `row_dims` dims or for all of x.
ValueId MatchDynamic(const Graph& g, ValueId q, size_t row_dims) {
  const Node* quantize = g.producer_if(q, OpId::kQuantizeAffine);
  if (!quantize || g.type(q).dtype != DType::kI8 || !IsI8(*quantize)) return kNone;
  const ValueId x = quantize->operands[0];
  const Node* choose = g.producer_if(quantize->operands[1], OpId::kChooseQparamsAffine);
  if (!choose || !IsI8(*choose) || choose->operands[0] != x) return kNone;
  if (choose->results[0] != quantize->operands[1] || choose->results[1] != quantize->operands[2]) return kNone;
  const std::vector<Dim>& block = GetAttr(*choose, "block_size").Dims();
  const Shape& shape = g.type(x).shape;
  if (GetAttr(*quantize, "block_size").Dims() != block || block.size() != shape.rank() || shape.rank() < row_dims || row_dims == 0) return kNone;
  const size_t outer = shape.rank() - row_dims;
  if (!IsWhole(block, shape, outer)) return kNone;
  const bool rows = std::all_of(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(outer), [](Dim d) { return d == Dim(1); });
  return rows || IsWhole(block, shape, 0) ? x : kNone;
}

// The same for a value that is dequantized again.
ValueId MatchDynamicReal(const Graph& g, ValueId v, size_t row_dims) {
  const Node* real = g.producer_if(v, OpId::kDequantizeAffine);
  const Node* quantize = real ? g.producer_if(real->operands[0], OpId::kQuantizeAffine) : nullptr;
  if (!quantize || real->operands[1] != quantize->operands[1] || real->operands[2] != quantize->operands[2]) return kNone;
  if (GetAttr(*real, "block_size") != GetAttr(*quantize, "block_size")) return kNone;
  return MatchDynamic(g, real->operands[0], row_dims);
}

// The constant whose transpose `v` is.
const Constant* MatchTransposed(const Module& module, const Graph& g, ValueId v) {
  const Node* permute = g.producer_if(v, OpId::kPermute);
  const Constant* c = permute && SwapsLastTwo(*permute) ? GetConstant(module, g, permute->operands[0]) : nullptr;
  return c && c->type.rank() == 2 && c->data_known ? c : nullptr;
}
// The same behind a conversion to `dtype`.
const Constant* MatchTransposedAs(const Module& module, const Graph& g, ValueId v, DType dtype) {
  return g.type(v).dtype == dtype ? MatchTransposed(module, g, MatchUnary(g, v, OpId::kToDtype)) : nullptr;
}

// q @ W^T in i32, where W is a constant. As it is, or with 128 added to q and 128 * (the sums of W's rows) taken off.
struct IntegerProduct {
  ValueId q = kNone;
  const Constant* weight = nullptr;
};
std::optional<IntegerProduct> MatchIntegerProduct(const Module& module, const Graph& g, ValueId v) {
  ValueId product = v;
  const Constant* corrected = nullptr;
  if (const auto [minuend, correction] = MatchBinary(g, v, OpId::kSub); minuend != kNone) {
    const auto scaled = MatchScalar(module, g, correction, OpId::kMul);
    if (!scaled || scaled->scalar != 128) return std::nullopt;
    const ValueId wide = MatchUnary(g, scaled->value, OpId::kToDtype);
    const Node* sum = g.producer_if(wide == kNone ? scaled->value : wide, OpId::kSum);
    if (!sum || !GetAttr(*sum, "keepdim").Bool() || GetAttr(*sum, "dim").Dims() != std::vector<Dim>{0}) return std::nullopt;
    corrected = MatchTransposedAs(module, g, sum->operands[0], DType::kI32);
    if (!corrected) return std::nullopt;
    product = minuend;
  }
  const Node* matmul = g.producer_if(product, OpId::kMatmul);
  if (!matmul || g.type(product).dtype != DType::kI32) return std::nullopt;
  IntegerProduct found{MatchUnary(g, matmul->operands[0], OpId::kToDtype), MatchTransposedAs(module, g, matmul->operands[1], DType::kI32)};
  if (!found.weight || found.q == kNone || (corrected && corrected != found.weight)) return std::nullopt;
  if (corrected) {
    if (g.type(found.q).dtype != DType::kU8) return std::nullopt;
    const auto shifted = MatchScalar(module, g, MatchUnary(g, found.q, OpId::kToDtype), OpId::kAdd);
    if (!shifted || shifted->scalar != 128 || g.type(shifted->value).dtype != DType::kI32) return std::nullopt;
    found.q = MatchUnary(g, shifted->value, OpId::kToDtype);
  }
  if (found.q == kNone || g.type(found.q).dtype != DType::kI8 || g.type(found.q).quant != QuantParams()) return std::nullopt;
  return found;
}

class LayerRecovery {
 public:
  LayerRecovery(Module& module, StoredWeights& weights) : module_(module), weights_(weights) {}

  Result<Replacement> Rule(RewriteContext& c, NodeId id) {
    const Node& n = c.graph.node(id);
    if (n.results.size() != 1 || c.graph.type(n.results[0]).dtype != DType::kF32) return Replacement();
    switch (n.op) {
      case OpId::kLinear: return Linear(c, id);
      case OpId::kConvolution: return Convolution(c, id);
      case OpId::kEmbedding: return Embedding(c, id);
      case OpId::kMul: return Product(c, id);
      case OpId::kAdd: return AddToBias(c, id);
      default: return Replacement();
    }
  }

 private:
  struct Activation {
    ValueId value, scale = kNone, zero_point = kNone;
  };

  // One quantize_dynamic per value and size of rows, however often the export quantizes it.
  Result<Activation> Quantized(RewriteContext& c, ValueId x, int64_t row_dims) {
    if (auto it = inputs_.find({x, row_dims}); it != inputs_.end()) return it->second;
    DT_ASSIGN_OR_RETURN(const std::vector<ValueId> q, c.builder.EmitAll(OpId::kQuantizeDynamic, {x}, {{"num_nonbatch_dims", row_dims}}));
    return inputs_[{x, row_dims}] = Activation{q[0], q[1], q[2]};
  }

  Result<ValueId> Viewed(RewriteContext& c, ValueId v, const Shape& shape) {
    if (c.graph.type(v).shape == shape) return v;
    return c.builder.Emit(OpId::kView, {v}, {{"size", std::vector<Dim>(shape.begin(), shape.end())}});
  }

  Result<Replacement> Layer(RewriteContext& c, const Activation& x, const StoredWeight& w, ValueId bias, const Shape& out) {
    const bool own_bias = bias != kNone && c.graph.type(bias) == TensorType(DType::kF32, {out.back()});
    DT_ASSIGN_OR_RETURN(ValueId y, c.builder.Emit(OpId::kQuantizedLinear, {x.value, x.scale, x.zero_point, c.builder.Const(w.data), c.builder.Const(w.scale),
                                                                           own_bias ? bias : kNone}));
    DT_ASSIGN_OR_RETURN(y, Viewed(c, y, out));
    if (bias != kNone && !own_bias) {
      DT_ASSIGN_OR_RETURN(y, c.builder.Emit(OpId::kAdd, {y, bias}));
    }
    return Replacement(std::vector<ValueId>{y});
  }

  Result<Replacement> Linear(RewriteContext& c, NodeId id) {
    const std::vector<ValueId> operands = c.graph.node(id).operands;
    const Shape out = c.graph.type(c.graph.node(id).results[0]).shape;
    if (c.graph.type(operands[1]).rank() != 2 || c.graph.type(operands[0]).dtype != DType::kF32) return Replacement();
    const auto w = weights_.Find(c.graph, operands[1], 0);
    if (!w) return Replacement();
    Activation x{operands[0]};
    for (ValueId v : {operands[0], BeforeView(c.graph, operands[0])})
      if (const ValueId real = MatchDynamicReal(c.graph, v, 1); real != kNone) {
        DT_ASSIGN_OR_RETURN(x, Quantized(c, real, 1));
      }
    return Layer(c, x, *w, operands[2], out);
  }

  Result<Replacement> Convolution(RewriteContext& c, NodeId id) {
    std::vector<ValueId> operands = c.graph.node(id).operands;
    const std::vector<Attr> attrs = c.graph.node(id).attrs;
    const bool transposed = GetAttr(c.graph.node(id), "transposed").Bool();
    // In groups, the output channels of a transposed one lie on two dims of the weight.
    if (transposed && GetAttr(c.graph.node(id), "groups").Int(1) != 1) return Replacement();
    if (c.graph.type(operands[0]).dtype != DType::kF32) return Replacement();
    const auto w = weights_.Find(c.graph, operands[1], transposed ? 1 : 0);
    if (!w) return Replacement();
    const size_t row_dims = c.graph.type(operands[0]).rank() - 1;
    Activation x{operands[0]};
    if (const ValueId real = MatchDynamicReal(c.graph, operands[0], row_dims); real != kNone) {
      DT_ASSIGN_OR_RETURN(x, Quantized(c, real, static_cast<int64_t>(row_dims)));
    } else if (!c.graph.producer_if(operands[0], OpId::kDequantize)) {
      return Replacement();  // no kernel takes a float input with integer filters: fold_constants makes them floats
    }
    DT_ASSIGN_OR_RETURN(std::vector<ValueId> y, c.builder.EmitWith(OpId::kQuantizedConvolution, {x.value, x.scale, x.zero_point, c.builder.Const(w->data),
                                                                                                c.builder.Const(w->scale), operands[2]}, attrs));
    return Replacement(std::move(y));
  }

  Result<Replacement> Embedding(RewriteContext& c, NodeId id) {
    const ValueId table = c.graph.node(id).operands[0], indices = c.graph.node(id).operands[1];
    if (c.graph.type(table).rank() != 2) return Replacement();
    const auto w = weights_.Find(c.graph, table, 0);
    if (!w) return Replacement();
    DT_ASSIGN_OR_RETURN(const ValueId y, c.builder.Emit(OpId::kQuantizedEmbedding, {c.builder.Const(w->data), c.builder.Const(w->scale), indices}));
    return Replacement(std::vector<ValueId>{y});
  }

  // The products that torchao's Int8Tensor spells out, at their last factor: the scales of the weight's rows.
  Result<Replacement> Product(RewriteContext& c, NodeId id) {
    const Graph& g = c.graph;
    const auto [product, factor] = MatchBinary(g, g.node(id).results[0], OpId::kMul);
    const Shape out = g.type(g.node(id).results[0]).shape;
    if (out.rank() != 2 || !(g.type(product).shape == out) || !(g.type(factor).shape == Shape{out[1]})) return Replacement();
    const auto scales = NumbersOf(module_, g, factor);
    if (!scales) return Replacement();
    ValueId input = kNone;
    const Constant* weight = nullptr;
    bool dynamic = false;
    if (const Node* matmul = g.producer_if(product, OpId::kMatmul)) {
      input = matmul->operands[0];
      weight = MatchTransposedAs(module_, g, matmul->operands[1], DType::kF32);
    } else if (const auto [integers, row_scale] = MatchBinary(g, product, OpId::kMul); integers != kNone) {
      const auto found = MatchIntegerProduct(module_, g, MatchUnary(g, integers, OpId::kToDtype));
      if (!found) return Replacement();
      const ValueId q = BeforeView(g, found->q);
      input = MatchDynamic(g, q, 1);
      const Node* quantize = g.producer_if(q, OpId::kQuantizeAffine);
      // The rows' scales, one for each; and zero points of 0, which a symmetric choice over i8 gives.
      const Node* view = g.producer_if(row_scale, OpId::kView);
      if (input == kNone || (view ? view->operands[0] : row_scale) != quantize->operands[1]) return Replacement();
      if (!(g.type(row_scale).shape == Shape{out[0], Dim(1)})) return Replacement();
      const Attr& mapping = GetAttr(*g.producer(quantize->operands[1]), "mapping_type");
      if (!mapping.is<std::string>() || !mapping.get<std::string>()->starts_with("symmetric")) return Replacement();
      if (!(g.type(quantize->operands[1]).shape.numel() == out[0])) return Replacement();
      weight = found->weight;
      dynamic = true;
    }
    if (!weight) return Replacement();
    const Constant integers = *weight;
    const auto w = weights_.PerChannel(integers, *scales, ConstantBehind(module_, c.graph, factor)->identity(), 0);
    if (!w) return Replacement();
    Activation x{dynamic ? input : BeforeView(g, input)};
    if (dynamic) {
      DT_ASSIGN_OR_RETURN(x, Quantized(c, input, 1));
    }
    return Layer(c, x, *w, kNone, out);
  }

  // A bias added to a quantized_linear, behind one view of the leading dims at most.
  Result<Replacement> AddToBias(RewriteContext& c, NodeId id) {
    const auto sides = MatchBinary(c.graph, c.graph.node(id).results[0], OpId::kAdd);
    const Shape out = c.graph.type(c.graph.node(id).results[0]).shape;
    for (const auto& [sum, bias] : {sides, std::pair(sides.second, sides.first)}) {
      if (sum == kNone || !GetConstant(module_, c.graph, bias)) continue;
      ValueId y = sum;
      while (BeforeView(c.graph, y) != y && c.use_count(y) == 1) y = BeforeView(c.graph, y);
      const Node* linear = c.graph.producer_if(y, OpId::kQuantizedLinear);
      if (!linear || linear->operands[5] != kNone || c.use_count(y) != 1 || !(c.graph.type(sum).shape == out)) continue;
      if (c.graph.type(bias) != TensorType(DType::kF32, {out.back()})) continue;
      std::vector<ValueId> operands = linear->operands;
      operands[5] = bias;
      DT_ASSIGN_OR_RETURN(ValueId v, c.builder.Emit(OpId::kQuantizedLinear, std::move(operands)));
      DT_ASSIGN_OR_RETURN(v, Viewed(c, v, out));
      return Replacement(std::vector<ValueId>{v});
    }
    return Replacement();
  }

  Module& module_;
  StoredWeights& weights_;
  std::map<std::pair<ValueId, int64_t>, Activation> inputs_;
};

}  // namespace

Status RecoverLayers(Module& module) {
  StoredWeights weights(module);
  for (auto& g : module.graphs) {
    LayerRecovery recovery(module, weights);
    DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteGraph(module, *g, [&](RewriteContext& c, NodeId id) { return recovery.Rule(c, id); }));
  }
  return OkStatus();
}

}  // namespace dovetail
