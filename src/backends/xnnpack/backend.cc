#include "backends/xnnpack/backend.h"

#include <algorithm>

#include "backends/xnnpack/lowering.h"
#include "ops/infer_util.h"

namespace dovetail {
namespace {

using xnnpack::Lowering;

Status Check(const Module& module, const Graph& graph, const Node& node) {
  // Constants go into the region with the nodes that use them.
  if (node.op == OpId::kConst) return OkStatus();
  if (!xnnpack::FindLowering(node.op)) return Unsupported("XNNPACK has no operator for ", GetOp(node.op).name);
  Lowering checking(module, graph, Lowering::Mode::kCheck);
  xnnpack::LowerNode(checking, node);
  return checking.status();
}

bool IsHeavy(OpId op) {
  switch (op) {
    case OpId::kLinear:
    case OpId::kQuantizedLinear:
    case OpId::kQuantizedConvolution:
    case OpId::kMatmul:
    case OpId::kBmm:
    case OpId::kConvolution:
    case OpId::kAttention:
    case OpId::kSoftmax:
    case OpId::kRmsNorm:
    case OpId::kRope:
    case OpId::kSiluMul:
    case OpId::kMean:
    case OpId::kMaxPool2dWithIndices:
    case OpId::kAvgPool2d: return true;
    default: return false;
  }
}

bool Worthwhile(const Module&, const Graph& graph, std::span<const NodeId> nodes) {
  size_t light = 0;
  for (NodeId id : nodes) {
    const OpId op = graph.node(id).op;
    if (IsHeavy(op)) return true;
    if (GetOp(op).traits & kElementwise) ++light;
  }
  return light >= 3;
}

// Attention, since XNNPACK reads all of a cache and packs it anew in each call, and ours reads what the mask or the positions leave of it; rope,
// one kernel of ours in place of nine nodes, each of which goes through memory; a view that costs nothing, where XNNPACK's reshape
// copies; a permutation of whole rows, which mostly stands beside such a view.
bool CheaperOutside(const Graph& graph, const Node& node) {
  const auto is_argument = [&](ValueId v) {
    return graph.value(v).producer == kNone || std::find(graph.outputs.begin(), graph.outputs.end(), v) != graph.outputs.end();
  };
  switch (node.op) {
    case OpId::kRope:
    case OpId::kAttention: return true;
    case OpId::kView: return !is_argument(node.operands[0]) && !is_argument(node.results[0]);
    case OpId::kPermute: {
      const std::span<const Dim> dims = DimsOf(GetAttr(node, "dims"));
      const int64_t rank = static_cast<int64_t>(dims.size());
      return rank > 1 && (dims.back() == Dim(rank - 1) || dims.back() == Dim(-1));
    }
    default: return false;
  }
}

Result<LoweredRegion> Lower(const Module& module, const Region& region) {
  for (int alias : region.aliases)
    if (alias >= 0) return Unsupported("XNNPACK: a result that updates an operand in place");
  const Graph& body = *region.body;
  Lowering emitting(module, body, Lowering::Mode::kEmit);
  emitting.BindInputs();
  for (NodeId id : body.order) {
    const Node& node = body.node(id);
    if (node.op == OpId::kConst) continue;
    if (!xnnpack::FindLowering(node.op))
      return Unsupported("XNNPACK has no operator for ", GetOp(node.op).name).At(DescribeNode(body, node), DescribeSource(module, node));
    xnnpack::LowerNode(emitting, node);
    if (emitting.failed()) return emitting.status().At(DescribeNode(body, node), DescribeSource(module, node));
  }
  return emitting.Finish();
}

}  // namespace

namespace xnnpack {

LowerFn FindLowering(OpId op) {
  for (LowerFn (*find)(OpId) : {FindElementwise, FindMovement, FindAlgebra, FindAttention, FindSpatial, FindQuantized})
    if (LowerFn lower = find(op)) return lower;
  return nullptr;
}

}  // namespace xnnpack

const Backend& XnnpackBackend() {
  static const Backend kBackend = {"xnnpack", Check, Worthwhile, Lower, nullptr, CheaperOutside, [](OpId op) { return xnnpack::FindLowering(op) != nullptr; }};
  return kBackend;
}

}  // namespace dovetail
