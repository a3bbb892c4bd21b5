#include "quant/layers.h"

#include <algorithm>

namespace dovetail {
namespace {

struct Matrix {
  QuantizedWeight weight;
  std::string what;
};
// In the scheme's bits; in 8 where 4 do not fit the shape.
Result<Matrix> QuantizeMatrix(const Module& module, uint32_t constant, const Scheme& scheme, WeightQuantizer& weights) {
  const int64_t columns = module.constants[constant].type.shape[1].value();
  Matrix m;
  if (scheme.weight_bits == 4 && !weights.stays_at_8_bits(constant) && columns > 0 && columns % scheme.block == 0) {
    DT_ASSIGN_OR_RETURN(m.weight, weights.PerBlock(constant, scheme.block));
    m.what = StrCat("i4 per_block size=", scheme.block);
  } else {
    DT_ASSIGN_OR_RETURN(m.weight, weights.PerChannel(constant, 0));
    m.what = "i8 per_channel";
    if (scheme.weight_bits == 4 && !weights.stays_at_8_bits(constant)) m.what += StrCat(" (its ", columns, " columns are not whole blocks of ", scheme.block, ")");
  }
  return m;
}

class LayerQuantizer {
 public:
  LayerQuantizer(Module& module, const QuantizeOptions& options, WeightQuantizer& weights, QuantizeReport& report, const std::set<std::string>* only)
      : module_(module), options_(options), scheme_(*options.scheme), weights_(weights), report_(report), only_(only) {}

  Status Run() {
    for (auto& g : module_.graphs) {
      inputs_.clear();
      DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteGraph(module_, *g, [&](RewriteContext& c, NodeId id) { return Rule(c, id); }));
    }
    return OkStatus();
  }

 private:
  struct Activation {
    ValueId value, scale = kNone, zero_point = kNone;
  };

  Result<Replacement> Rule(RewriteContext& c, NodeId id) {
    const Node& n = c.graph.node(id);
    Result<LayerChange> (LayerQuantizer::*quantize)(RewriteContext&, NodeId);
    switch (n.op) {
      case OpId::kLinear: quantize = &LayerQuantizer::Linear; break;
      case OpId::kConvolution: quantize = &LayerQuantizer::Convolution; break;
      case OpId::kEmbedding: quantize = &LayerQuantizer::Embedding; break;
      case OpId::kLstmScan:
      case OpId::kGruScan: quantize = &LayerQuantizer::Recurrent; break;
      case OpId::kMatmul:
      case OpId::kBmm:
        // A product of two activations is no layer.
        if (!GetConstant(module_, c.graph, n.operands[0]) && !GetConstant(module_, c.graph, n.operands[1])) return Replacement();
        quantize = &LayerQuantizer::MatMul;
        break;
      default: return Replacement();
    }
    LayerReport layer{LayerPath(module_, c.graph, n), std::string(GetOp(n.op).name), {}, {}, {}};
    if (only_ && !only_->contains(layer.path)) return Replacement();
    if (const Location* l = module_.location(n)) layer.source = l->source;
    LayerChange made;
    if (KeptFloat(options_, layer.path)) {
      made = LeftInFloat("--keep-float asks for it");
    } else if (c.graph.type(n.results[0]).dtype != DType::kF32) {
      made = LeftInFloat(StrCat("it computes in ", Name(c.graph.type(n.results[0]).dtype), "; only f32 layers are quantized"));
    } else {
      Result<LayerChange> result = (this->*quantize)(c, id);
      if (!result.ok()) return std::move(result).status().At(DescribeNode(c.graph, c.graph.node(id)), layer.source);
      made = *std::move(result);
    }
    layer.became = std::move(made.became);
    layer.reason = std::move(made.reason);
    report_.layers.push_back(std::move(layer));
    return made.value ? Replacement(std::vector<ValueId>{*made.value}) : Replacement();
  }

  // One quantize_dynamic per value and size of rows.
  Result<Activation> Quantized(RewriteContext& c, ValueId input, int64_t row_dims) {
    if (scheme_.activations == Activations::kFloat) return Activation{input};
    if (auto it = inputs_.find({input, row_dims}); it != inputs_.end()) return it->second;
    DT_ASSIGN_OR_RETURN(const std::vector<ValueId> q, c.builder.EmitAll(OpId::kQuantizeDynamic, {input}, {{"num_nonbatch_dims", row_dims}}));
    return inputs_[{input, row_dims}] = Activation{q[0], q[1], q[2]};
  }

  // XNNPACK sums products of a row's integers (at most 255 from its zero point) and a weight's (at most 127) in 32 bits.
  static bool TooLongForSums(int64_t products) { return products > INT32_MAX / (255 * 127); }

  std::string Became(const std::string& weight) const { return (scheme_.activations == Activations::kFloat ? "f32 x " : "i8 dynamic per_row x ") + weight; }

  Result<LayerChange> Product(RewriteContext& c, ValueId input, uint32_t weight, ValueId bias) {
    if (scheme_.activations != Activations::kFloat && TooLongForSums(module_.constants[weight].type.shape[1].value()))
      return LeftInFloat("its sums of products could exceed 32 bits");
    DT_ASSIGN_OR_RETURN(const Matrix m, QuantizeMatrix(module_, weight, scheme_, weights_));
    DT_ASSIGN_OR_RETURN(const Activation x, Quantized(c, input, 1));
    const bool own_bias = bias != kNone && GetConstant(module_, c.graph, bias) && c.graph.type(bias).shape == Shape{module_.constants[weight].type.shape[0]};
    DT_ASSIGN_OR_RETURN(ValueId y, c.builder.Emit(OpId::kQuantizedLinear, {x.value, x.scale, x.zero_point, c.builder.Const(m.weight.data),
                                                                           c.builder.Const(m.weight.scale), own_bias ? bias : kNone}));
    if (bias != kNone && !own_bias) {
      DT_ASSIGN_OR_RETURN(y, c.builder.Emit(OpId::kAdd, {y, bias}));
    }
    return LayerChange{y, Became(m.what), {}};
  }

  Result<LayerChange> Linear(RewriteContext& c, NodeId id) {
    const Node& n = c.graph.node(id);
    const uint32_t weight = ConstantOf(c.graph, n.operands[1]);
    if (weight == kNone) return LeftInFloat("its weight is computed by the model, not a constant");
    if (module_.constants[weight].type.rank() != 2) return LeftInFloat("its weight is a vector");
    if (!module_.constants[weight].data_known) return LeftInFloat("the data of its weight are not in the file");
    return Product(c, n.operands[0], weight, n.operands[2]);
  }

  Result<LayerChange> MatMul(RewriteContext& c, NodeId id) {
    const Node& n = c.graph.node(id);
    const uint32_t weight = ConstantOf(c.graph, n.operands[1]);
    if (weight == kNone) return LeftInFloat("its constant matrix stands on the left; write it as x @ w, or as a linear, to have it quantized");
    if (module_.constants[weight].type.rank() != 2 || n.op == OpId::kBmm) return LeftInFloat("its constant is a batch of matrices");
    if (!module_.constants[weight].data_known) return LeftInFloat("the data of its weight are not in the file");
    return Product(c, n.operands[0], weights_.Transposed(weight), kNone);
  }

  Result<LayerChange> Convolution(RewriteContext& c, NodeId id) {
    const Node& n = c.graph.node(id);
    const uint32_t weight = ConstantOf(c.graph, n.operands[1]);
    if (weight == kNone) return LeftInFloat("its weight is computed by the model, not a constant");
    if (!module_.constants[weight].data_known) return LeftInFloat("the data of its weight are not in the file");
    if (scheme_.activations == Activations::kFloat) return LeftInFloat("weight-only schemes quantize linears and embeddings; no kernel takes a float input with integer filters");
    const bool transposed = GetAttr(n, "transposed").Bool();
    // Measured 12 times slower in groups than in f32 (64 channels, 3x3, 56x56); its weights are few.
    if (!transposed && GetAttr(n, "groups").Int(1) > 1 && module_.constants[weight].type.shape[1] == Dim(1))
      return LeftInFloat("a depthwise convolution: XNNPACK has no kernel for rows quantized at run time, and groups of one channel are far slower; --quantize int8 quantizes it");
    if (const Shape& w = module_.constants[weight].type.shape; TooLongForSums(w.numel().value() / std::max<int64_t>(1, w[transposed ? 1 : 0].value())))
      return LeftInFloat("its sums of products could exceed 32 bits");
    if (transposed && GetAttr(n, "groups").Int(1) != 1) return LeftInFloat("a transposed convolution in groups: its output channels lie on two dims of the weight");
    if (n.operands[2] != kNone && !GetConstant(module_, c.graph, n.operands[2])) return LeftInFloat("its bias is computed by the model, not a constant");
    DT_ASSIGN_OR_RETURN(const QuantizedWeight w, weights_.PerChannel(weight, transposed ? 1 : 0));
    DT_ASSIGN_OR_RETURN(const Activation x, Quantized(c, n.operands[0], static_cast<int64_t>(c.graph.type(n.operands[0]).rank()) - 1));
    std::vector<ValueId> operands = {x.value, x.scale, x.zero_point, c.builder.Const(w.data), c.builder.Const(w.scale), c.graph.node(id).operands[2]};
    DT_ASSIGN_OR_RETURN(const std::vector<ValueId> y, c.builder.EmitWith(OpId::kQuantizedConvolution, std::move(operands), c.graph.node(id).attrs));
    return LayerChange{y[0], "i8 dynamic per item x i8 per_channel", {}};
  }

  Result<LayerChange> Recurrent(RewriteContext&, NodeId) {
    return LeftInFloat(kRecurrentReason);
  }

  Result<LayerChange> Embedding(RewriteContext& c, NodeId id) { return QuantizeEmbedding(c, id, scheme_, weights_); }

  Module& module_;
  const QuantizeOptions& options_;
  const Scheme& scheme_;
  WeightQuantizer& weights_;
  QuantizeReport& report_;
  const std::set<std::string>* only_;  // null: all
  std::map<std::pair<ValueId, int64_t>, Activation> inputs_;  // of the graph under way
};

}  // namespace

std::string LayerPath(const Module& module, const Graph& graph, const Node& node) {
  if (const Location* l = module.location(node); l && !l->module_path.empty()) return l->module_path;
  std::string name;
  for (ValueId v : node.operands)
    // Of a recurrent layer the first states may be constants too, made by the model.
    if (const Constant* c = v == kNone ? nullptr : GetConstant(module, graph, v); c && (name.empty() || name.starts_with("folded."))) name = c->name;
  if (name.ends_with(".weight")) name.resize(name.size() - 7);
  if (const size_t leaf = name.rfind(".weight_hh_"); leaf != std::string::npos) name.resize(leaf);
  return name;
}

uint32_t ConstantOf(const Graph& graph, ValueId v) {
  const Node* n = v == kNone ? nullptr : graph.producer_if(v, OpId::kConst);
  return n ? n->ref : kNone;
}

Result<LayerChange> QuantizeEmbedding(RewriteContext& c, NodeId id, const Scheme& scheme, WeightQuantizer& weights) {
  const Node& n = c.graph.node(id);
  const uint32_t weight = ConstantOf(c.graph, n.operands[0]);
  if (weight == kNone) return LeftInFloat("its table is computed by the model, not a constant");
  if (!c.module.constants[weight].data_known) return LeftInFloat("the data of its table are not in the file");
  if (c.module.constants[weight].type.rank() != 2) return LeftInFloat("its table is not a matrix");
  DT_ASSIGN_OR_RETURN(const Matrix m, QuantizeMatrix(c.module, weight, scheme, weights));
  const ValueId indices = c.graph.node(id).operands[1];
  DT_ASSIGN_OR_RETURN(const ValueId y, c.builder.Emit(OpId::kQuantizedEmbedding, {c.builder.Const(m.weight.data), c.builder.Const(m.weight.scale), indices}));
  return LayerChange{y, m.what, {}};
}

Status QuantizeLayers(Module& module, const QuantizeOptions& options, WeightQuantizer& weights, QuantizeReport& report, const std::set<std::string>* only) {
  return LayerQuantizer(module, options, weights, report, only).Run();
}

}  // namespace dovetail
