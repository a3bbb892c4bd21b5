// Layers with constant weights become their quantized operators, for the schemes that need no calibration of activations.
#pragma once

#include <set>
#include <string>

#include "ir/rewrite.h"
#include "quant/quantize.h"
#include "quant/weights.h"

namespace dovetail {

// The path that reports and --keep-float use: the node's module path, or the name of the weight (without ".weight") where there is none.
std::string LayerPath(const Module& module, const Graph& graph, const Node& node);

// The index of the constant that `v` is, or kNone.
uint32_t ConstantOf(const Graph& graph, ValueId v);

inline constexpr const char* kRecurrentReason =
    "a recurrent layer (RNN): rounding errors of its state would add up over the steps; the product with its input is a layer of its own and is quantized";

// What a layer becomes, or why it stays as it is.
struct LayerChange {
  std::optional<ValueId> value;  // in place of the layer's result; nullopt: left in float
  std::string became, reason;
};
inline LayerChange LeftInFloat(std::string reason) { return {std::nullopt, {}, std::move(reason)}; }
// A lookup in a constant table, in the scheme's bits.
Result<LayerChange> QuantizeEmbedding(RewriteContext& c, NodeId id, const Scheme& scheme, WeightQuantizer& weights);

// Linears, matrix products with a constant, convolutions and embeddings of every graph, or those whose LayerPath is in `only`. Activations of
// `options.scheme` are kDynamic or kFloat.
Status QuantizeLayers(Module& module, const QuantizeOptions& options, WeightQuantizer& weights, QuantizeReport& report,
                      const std::set<std::string>* only = nullptr);

}  // namespace dovetail
