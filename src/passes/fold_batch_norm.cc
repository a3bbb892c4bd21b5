// convolution(x, W, b) * scale + shift, with a constant scale and shift per output channel, becomes a convolution with W * scale and
// b * scale + shift. This is where a batch norm in evaluation mode ends.
#include <algorithm>
#include <cstring>

#include "passes/match.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

// `v` holds one f32 per channel: shape [C,1,..] or [1,C,1,..] to broadcast over dim 1 of a tensor of `rank`, or one number for all.
std::optional<std::vector<float>> PerChannel(const Module& module, const Graph& g, ValueId v, size_t rank, int64_t channels) {
  const Constant* c = GetConstant(module, g, v);
  if (!c || !c->data_known || c->type.dtype != DType::kF32) return std::nullopt;
  const Shape& s = c->type.shape;
  const int64_t n = s.numel().value();
  if (n != 1 && (n != channels || s.rank() + 1 < rank || s.rank() > rank || s[s.rank() + 1 - rank] != Dim(channels))) return std::nullopt;
  std::vector<float> values(static_cast<size_t>(n));
  c->CopyTo(reinterpret_cast<std::byte*>(values.data()));
  if (n == 1) values.assign(static_cast<size_t>(channels), values[0]);
  return values;
}

std::vector<std::byte> Bytes(const std::vector<float>& v) {
  std::vector<std::byte> b(v.size() * sizeof(float));
  std::memcpy(b.data(), v.data(), b.size());
  return b;
}

// That of the convolution, which keeps its name, with the module of what is folded into it.
uint32_t FoldedLocation(Module& module, uint32_t convolution, uint32_t folded) {
  if (convolution == kNone || folded == kNone) return convolution == kNone ? folded : convolution;
  Location l = module.locations[convolution];
  const std::string& path = module.locations[folded].module_path;
  if (path.empty() || path == l.module_path || std::find(l.folded.begin(), l.folded.end(), path) != l.folded.end()) return convolution;
  l.folded.push_back(path);
  module.locations.push_back(std::move(l));
  return static_cast<uint32_t>(module.locations.size() - 1);
}

Result<Replacement> Rule(RewriteContext& c, NodeId id) {
  Graph& g = c.graph;
  const OpId op = g.node(id).op;
  if (op != OpId::kMul && op != OpId::kAdd && op != OpId::kSub) return Replacement();
  if (op != OpId::kMul && !IsNumber(GetAttr(g.node(id), "alpha"), 1)) return Replacement();
  const std::vector<ValueId> operands = g.node(id).operands;
  for (size_t side = 0; side < (op == OpId::kSub ? 1u : 2u); ++side) {
    const Node* conv = g.producer_if(operands[side], OpId::kConvolution);
    if (!conv || c.use_count(operands[side]) != 1 || GetAttr(*conv, "transposed").Bool()) continue;
    const Constant* w = GetConstant(c.module, g, conv->operands[1]);
    const Constant* b = GetConstant(c.module, g, conv->operands[2]);
    if (!w || !w->data_known || w->type.dtype != DType::kF32 || (conv->operands[2] != kNone && (!b || !b->data_known))) continue;
    const int64_t channels = w->type.shape[0].value();
    if (channels < 1) continue;
    const auto factor = PerChannel(c.module, g, operands[1 - side], g.type(operands[side]).rank(), channels);
    if (!factor || g.type(g.node(id).results[0]) != g.type(operands[side])) continue;
    std::vector<float> bias(static_cast<size_t>(channels), 0.0f), weight(static_cast<size_t>(w->type.shape.numel().value()));
    if (b) b->CopyTo(reinterpret_cast<std::byte*>(bias.data()));
    w->CopyTo(reinterpret_cast<std::byte*>(weight.data()));
    const size_t per_channel = weight.size() / static_cast<size_t>(channels);
    for (size_t k = 0; k < bias.size(); ++k) {
      const float f = (*factor)[k];
      if (op == OpId::kMul) {
        bias[k] *= f;
        for (size_t i = 0; i < per_channel; ++i) weight[k * per_channel + i] *= f;
      } else {
        bias[k] += op == OpId::kAdd ? f : -f;
      }
    }
    const ValueId x = conv->operands[0];
    c.builder.location = FoldedLocation(c.module, conv->location, g.node(id).location);
    const std::vector<Attr> attrs = conv->attrs;
    ValueId new_weight = conv->operands[1];
    const std::string name = w->name;
    const TensorType weight_type = w->type;
    if (op == OpId::kMul) new_weight = c.builder.AddConst(name + ".scaled", weight_type, Bytes(weight));
    const ValueId new_bias = c.builder.AddConst(name + ".bias", TensorType(DType::kF32, {Dim(channels)}), Bytes(bias));
    DT_ASSIGN_OR_RETURN(std::vector<ValueId> results, c.builder.EmitWith(OpId::kConvolution, {x, new_weight, new_bias}, attrs));
    return Replacement(std::move(results));
  }
  return Replacement();
}

}  // namespace

Status FoldBatchNorm(Module& module) {
  for (auto& g : module.graphs) {
    bool changed = true;
    for (int round = 0; changed && round < 4; ++round) {
      DT_ASSIGN_OR_RETURN(changed, RewriteGraph(module, *g, Rule));
    }
  }
  return OkStatus();
}

}  // namespace dovetail
