#include "backends/qnn/large_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "ops/quantization.h"

namespace dovetail::qnn {
namespace {

constexpr float kLargest = 65504;

bool IsF32(const Graph& g, ValueId v) { return v != kNone && g.type(v).dtype == DType::kF32; }

bool IsLarge(const Constant& c) {
  if (c.type.dtype != DType::kF32 || !c.data_known) return false;
  std::vector<std::byte> copy;
  std::span<const std::byte> bytes;
  if (c.contiguous()) {
    bytes = c.bytes();
  } else {
    copy.resize(c.nbytes());
    c.CopyTo(copy.data());
    bytes = copy;
  }
  for (size_t i = 0; i < bytes.size(); i += sizeof(float)) {
    float v;
    std::memcpy(&v, bytes.data() + i, sizeof(float));
    if (std::abs(v) > kLargest) return true;
  }
  return false;
}

// Operators whose results have the elements of their operands, or sums or multiples of them.
bool Carries(OpId op) {
  switch (op) {
    case OpId::kAdd:
    case OpId::kSub:
    case OpId::kMul:
    case OpId::kNeg:
    case OpId::kMaximum:
    case OpId::kMinimum:
    case OpId::kSum:
    case OpId::kMean:
    case OpId::kWhere:
    case OpId::kCat:
    case OpId::kView:
    case OpId::kPermute:
    case OpId::kExpand:
    case OpId::kSlice:
    case OpId::kIndex:
    case OpId::kIndexSelect:
    case OpId::kClone: return true;
    default: return false;
  }
}

// Whether the integers reach beyond.
bool LargeRange(const TensorType& t) {
  if (!t.per_tensor()) return false;
  const ValueRange range = RangeOfParams(t.quant, t.dtype);
  return std::max(range.high, -range.low) > kLargest;
}

}  // namespace

std::vector<bool> LargeNumbers(const Module& module, const Graph& g) {
  std::vector<bool> large(g.num_nodes(), false), made(g.num_values(), false);
  std::vector<bool> hides(g.num_values(), true);  // whether all that reads the value takes any very low number for another
  for (ValueId v : g.outputs) hides[v] = false;
  for (auto it = g.order.rbegin(); it != g.order.rend(); ++it) {
    const Node& n = g.node(*it);
    const bool hidden = n.op == OpId::kSoftmax || n.op == OpId::kAmax || (n.op == OpId::kQuantize && !LargeRange(g.type(n.results[0]))) ||
                        (Carries(n.op) && hides[n.results[0]]);
    if (hidden) continue;
    for (ValueId v : n.operands)
      if (v != kNone) hides[v] = false;
  }
  std::map<uint32_t, bool> constants;  // each is read once
  const auto is_large = [&](uint32_t ref) {
    const auto [at, fresh] = constants.try_emplace(ref, false);
    if (fresh) at->second = IsLarge(module.constants[ref]);
    return at->second;
  };
  for (NodeId id : g.order) {
    const Node& n = g.node(id);
    if (n.results.empty() || n.op == OpId::kConst) continue;
    if (n.op == OpId::kQuantize || n.op == OpId::kDequantize) large[id] = LargeRange(g.type(n.op == OpId::kQuantize ? n.results[0] : n.operands[0]));
    if (!Carries(n.op) || !IsF32(g, n.results[0]) || hides[n.results[0]]) continue;
    large[id] = made[n.results[0]] = std::any_of(n.operands.begin(), n.operands.end(), [&](ValueId v) {
      if (!IsF32(g, v)) return false;
      const Node* constant = g.producer_if(v, OpId::kConst);
      return made[v] || (constant && is_large(constant->ref));
    });
  }
  return large;
}

}  // namespace dovetail::qnn
