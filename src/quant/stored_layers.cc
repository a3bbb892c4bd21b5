#include "quant/stored_layers.h"

#include "quant/layers.h"

namespace dovetail {
namespace {

std::string WeightText(const TensorType& weight) {
  if (weight.quant.kind == QuantParams::Kind::kPerBlock) return StrCat("i", static_cast<int>(weight.quant.bits), " per_block size=", weight.quant.block);
  return StrCat("i", static_cast<int>(weight.quant.bits), " per_channel");
}

std::string InputText(const TensorType& input, bool rows) {
  if (input.per_tensor()) return StrCat(Name(input.dtype), " per_tensor x ");
  if (input.quant.kind == QuantParams::Kind::kDynamic) return StrCat(Name(input.dtype), rows ? " dynamic per_row x " : " dynamic per item x ");
  return StrCat(Name(input.dtype), " x ");
}

}  // namespace

void ReportQuantizedLayers(const Module& module, QuantizeReport& report) {
  for (const auto& g : module.graphs)
    for (NodeId id : g->order) {
      const Node& n = g->node(id);
      LayerReport layer;
      switch (n.op) {
        case OpId::kQuantizedLinear: layer.op = "linear"; break;
        case OpId::kQuantizedConvolution: layer.op = "convolution"; break;
        case OpId::kQuantizedEmbedding: layer.op = "embedding"; break;
        default: continue;
      }
      layer.path = LayerPath(module, *g, n);
      layer.became = WeightText(g->type(GetOperand(n, "weight")));
      if (n.op != OpId::kQuantizedEmbedding) layer.became = InputText(g->type(GetOperand(n, "input")), n.op == OpId::kQuantizedLinear) + layer.became;
      if (const Location* l = module.location(n)) layer.source = l->source;
      report.layers.push_back(std::move(layer));
    }
}

}  // namespace dovetail
