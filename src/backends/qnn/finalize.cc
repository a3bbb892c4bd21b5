#include "backends/qnn/finalize.h"

#include <unordered_map>

namespace dovetail::qnn {

bool UsesFloats(const Graph& graph) {
  for (NodeId id : graph.order)
    for (ValueId v : graph.node(id).results)
      if (graph.type(v).dtype == DType::kF32 && graph.node(id).op != OpId::kConst && graph.node(id).op != OpId::kDequantize) return true;
  return false;
}

namespace {

// The first `count` nodes, constants not counted; what others or the caller used of them leaves the graph.
Graph Beginning(const Graph& body, size_t count) {
  Graph g(body.name);
  std::unordered_map<ValueId, ValueId> local;
  for (ValueId v : body.inputs) local[v] = g.AddInput(body.value(v).name, body.type(v));
  for (NodeId id : body.order) {
    const Node& n = body.node(id);
    if (n.op != OpId::kConst && count-- == 0) break;
    std::vector<ValueId> operands;
    for (ValueId v : n.operands) operands.push_back(v == kNone ? kNone : local.at(v));
    const NodeId copy = g.AddCopy(n, std::move(operands));
    g.order.push_back(copy);
    for (ValueId v : n.results) local[v] = g.AddResult(copy, body.type(v), body.value(v).name);
  }
  const std::vector<uint32_t> before = body.CountUses(), now = g.CountUses();
  for (NodeId id : body.order)
    if (body.node(id).op != OpId::kConst)
      for (ValueId v : body.node(id).results)
        if (const auto it = local.find(v); it != local.end() && now[it->second] < before[v]) g.outputs.push_back(it->second);
  return g;
}

}  // namespace

Result<abi::Handle> AddGraph(const Module& module, const Graph& body, const Context& context, const std::string& name) {
  DT_ASSIGN_OR_RETURN(const abi::Handle graph, context.CreateGraph(name, UsesFloats(body)));
  Lowering emitting(module, body, context.device(), graph);
  emitting.BindArguments();
  DT_RETURN_IF_ERROR(emitting.status());
  for (NodeId id : body.order) {
    const Node& node = body.node(id);
    if (node.op == OpId::kConst) continue;
    const LowerFn lower = FindLowering(node.op);
    if (!lower) return Unsupported("QNN: no lowering of ", GetOp(node.op).name).At(DescribeNode(body, node), DescribeSource(module, node));
    lower(emitting, node);
    if (emitting.failed()) return emitting.status().At(DescribeNode(body, node), DescribeSource(module, node));
  }
  emitting.Finish();
  DT_RETURN_IF_ERROR(emitting.status());
  return graph;
}

Status Finalize(const Context& context, abi::Handle graph) {
  const Library& library = context.device().library();
  return library.Check(library.functions().graph_finalize(graph, nullptr, nullptr), "QnnGraph_finalize");
}

NodeId FindRefusedNode(const Module& module, const Graph& body, const std::shared_ptr<Device>& device) {
  std::vector<NodeId> nodes;
  for (NodeId id : body.order)
    if (body.node(id).op != OpId::kConst) nodes.push_back(id);
  // Whether the first `count` can be made; a beginning that fails in another way, for what leaves it, tells nothing and counts as one that can.
  const auto can_be_made = [&](size_t count) {
    const Graph beginning = Beginning(body, count);
    const auto context = Context::Create(device, false);
    if (!context.ok()) return true;
    const auto graph = AddGraph(module, beginning, **context, "beginning");
    return !graph.ok() || Finalize(**context, *graph).ok();
  };
  if (nodes.empty() || can_be_made(nodes.size())) return kNone;
  size_t good = 0, bad = nodes.size();
  while (bad - good > 1) {
    const size_t middle = (good + bad) / 2;
    (can_be_made(middle) ? good : bad) = middle;
  }
  return nodes[bad - 1];
}

std::string SignatureOf(const Graph& graph, const Node& node) {
  std::string text = StrCat(GetOp(node.op).name, " ");
  const auto add = [&](ValueId v) {
    if (v != kNone) text += StrCat(Name(graph.type(v).dtype), graph.type(v).shape.ToString(), " ");
  };
  for (ValueId v : node.operands) add(v);
  text += "-> ";
  for (ValueId v : node.results) add(v);
  return text;
}

}  // namespace dovetail::qnn
