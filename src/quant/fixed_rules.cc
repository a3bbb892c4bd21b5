#include "quant/fixed_rules.h"

#include <algorithm>
#include <iterator>

namespace dovetail {
namespace {

struct FixedRule {
  OpId op;
  StaticRole role;
  bool (*fits)(const Graph&, const Node&) = nullptr;  // null: always
};

bool PlainSum(const Graph&, const Node& n) { return GetAttr(n, "alpha").Number(1) == 1; }
bool NoIndices(const Graph& g, const Node& n) { return g.CountUses()[n.results[1]] == 0; }
bool PadsWithZero(const Graph&, const Node& n) { return GetAttr(n, "value").Number(0) == 0; }
bool Replaces(const Graph&, const Node& n) { return !GetAttr(n, "accumulate").Bool(); }

constexpr FixedRule kRules[] = {
    {OpId::kLinear, StaticRole::kLayer},
    {OpId::kConvolution, StaticRole::kLayer},
    {OpId::kMatmul, StaticRole::kOwn},  // of a constant matrix a layer
    {OpId::kBmm, StaticRole::kOwn},
    {OpId::kAdd, StaticRole::kOwn, PlainSum},
    {OpId::kSub, StaticRole::kOwn, PlainSum},
    {OpId::kMul, StaticRole::kOwn},
    {OpId::kDiv, StaticRole::kOwn},
    {OpId::kMaximum, StaticRole::kOwn},
    {OpId::kMinimum, StaticRole::kOwn},
    {OpId::kPowTensorScalar, StaticRole::kOwn},
    {OpId::kNeg, StaticRole::kOwn},
    {OpId::kAbs, StaticRole::kOwn},
    {OpId::kExp, StaticRole::kOwn},
    {OpId::kLog, StaticRole::kOwn},
    {OpId::kSqrt, StaticRole::kOwn},
    {OpId::kRsqrt, StaticRole::kOwn},
    {OpId::kReciprocal, StaticRole::kOwn},
    {OpId::kGelu, StaticRole::kOwn},
    {OpId::kMean, StaticRole::kOwn},
    {OpId::kSum, StaticRole::kOwn},
    {OpId::kAvgPool2d, StaticRole::kOwn},
    {OpId::kUpsampleBilinear2d, StaticRole::kOwn},
    {OpId::kRmsNorm, StaticRole::kOwn},
    {OpId::kLayerNorm, StaticRole::kOwn},
    {OpId::kSoftmax, StaticRole::kFixed},
    {OpId::kSigmoid, StaticRole::kFixed},
    {OpId::kTanh, StaticRole::kFixed},
    {OpId::kView, StaticRole::kMove},
    {OpId::kPermute, StaticRole::kMove},
    {OpId::kExpand, StaticRole::kMove},
    {OpId::kSlice, StaticRole::kMove},
    {OpId::kCat, StaticRole::kMove},
    {OpId::kClone, StaticRole::kMove},
    {OpId::kWhere, StaticRole::kMove},
    {OpId::kEmbedding, StaticRole::kMove},
    {OpId::kIndex, StaticRole::kMove},
    {OpId::kIndexSelect, StaticRole::kMove},
    {OpId::kIndexPut, StaticRole::kMove, Replaces},
    {OpId::kSliceScatter, StaticRole::kMove},
    {OpId::kReflectionPad1d, StaticRole::kMove},
    {OpId::kConstantPadNd, StaticRole::kMove, PadsWithZero},
    {OpId::kUpsampleNearest2d, StaticRole::kMove},
    {OpId::kMaxPool2dWithIndices, StaticRole::kMove, NoIndices},
    {OpId::kAmax, StaticRole::kMove},
    {OpId::kRelu, StaticRole::kClamp},
    {OpId::kHardtanh, StaticRole::kClamp},
    {OpId::kClamp, StaticRole::kClamp},
};

bool IsF32(const Graph& g, ValueId v) { return v != kNone && g.type(v).dtype == DType::kF32 && g.type(v).quant.kind == QuantParams::Kind::kNone; }

}  // namespace

StaticRole FixedRoleOf(const Module& module, const Graph& graph, const Node& n) {
  const auto* rule = std::find_if(std::begin(kRules), std::end(kRules), [&](const FixedRule& r) { return r.op == n.op; });
  if (rule == std::end(kRules) || !IsF32(graph, n.results[0]) || (rule->fits && !rule->fits(graph, n))) return StaticRole::kFloat;
  for (size_t i : DataOperands(module, graph, n))
    if (!IsF32(graph, n.operands[i])) return StaticRole::kFloat;
  return IsLayer(module, graph, n) ? StaticRole::kLayer : rule->role;
}

std::vector<size_t> DataOperands(const Module& module, const Graph& graph, const Node& n) {
  if (IsLayer(module, graph, n)) return {0};
  switch (n.op) {
    case OpId::kWhere: return {1, 2};
    case OpId::kEmbedding:
    case OpId::kIndex:
    case OpId::kIndexSelect: return {0};
    case OpId::kIndexPut: return {0, n.operands.size() - 1};
    default: break;
  }
  std::vector<size_t> all(n.operands.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = i;
  return all;
}

QuantParams FixedParamsOf(OpId op, DType activation) {
  const bool wide = activation == DType::kU16;
  if (op == OpId::kTanh) return wide ? QuantParams::PerTensor(1.0f / 32768, 32768) : QuantParams::PerTensor(1.0f / 128, 128);
  return QuantParams::PerTensor(wide ? 1.0f / 65536 : 1.0f / 256, 0);
}

}  // namespace dovetail
