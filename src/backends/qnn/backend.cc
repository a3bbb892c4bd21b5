#include "backends/qnn/backend.h"

#include <algorithm>
#include <map>
#include <utility>

#include "backends/qnn/angles.h"
#include "backends/qnn/finalize.h"
#include "backends/qnn/large_numbers.h"
#include "backends/qnn/lowering.h"
#include "format/qnn_blob.h"
#include "ops/infer_util.h"

namespace dovetail {
namespace qnn {

LowerFn FindLowering(OpId op) {
  for (LowerFn (*find)(OpId) : {FindElementwise, FindMovement, FindIndexing, FindAlgebra, FindSpatial})
    if (LowerFn lower = find(op)) return lower;
  return nullptr;
}

namespace {

Status Check(const Device& device, const Module& module, const Graph& graph, const Node& node) {
  if (node.op == OpId::kConst) return OkStatus();
  const LowerFn lower = FindLowering(node.op);
  if (!lower) return Unsupported("QNN: no lowering of ", GetOp(node.op).name);
  Lowering checking(module, graph, device, nullptr);
  lower(checking, node);
  return checking.status();
}

// What only turns numbers from one form into another.
bool IsConversion(OpId op) {
  switch (op) {
    case OpId::kQuantize:
    case OpId::kDequantize:
    case OpId::kRequantize:
    case OpId::kToDtype:
    case OpId::kView:
    case OpId::kClone:
    case OpId::kPermute:
    case OpId::kExpand:
    case OpId::kSlice: return true;
    default: return false;
  }
}

class QnnCompiler {
 public:
  QnnCompiler(std::shared_ptr<Device> device, bool share_weights) : device_(std::move(device)), share_weights_(share_weights) {}

  void Look(const Module& module, const Graph& graph) {
    angles_ = AnglesOfPositions(graph);
    large_ = LargeNumbers(module, graph);
  }

  Status CheckNode(const Module& module, const Graph& graph, const Node& node) const {
    const NodeId id = node.results.empty() ? kNone : graph.value(node.results[0]).producer;
    if (id < angles_.size() && angles_[id]) return Unsupported("QNN: an angle made of positions, which 16 bits do not hold");
    if (id < large_.size() && large_[id]) return Unsupported("QNN: numbers beyond 65504, which the 16 bits that f32 is computed in do not hold");
    if (!refused_.empty())
      if (const auto it = refused_.find(SignatureOf(graph, node)); it != refused_.end()) return Unsupported(kNoQnnGraph, it->second);
    return Check(*device_, module, graph, node);
  }

  // Whether a graph could not be made since last asked, for a node that CheckNode refuses from now on.
  bool RefusesMore() { return std::exchange(refuses_more_, false); }

  Status Begin(const Module& module) {
    contexts_.clear();
    place_.clear();
    std::vector<std::vector<std::pair<std::string, const Region*>>> groups;
    for (const auto& g : module.graphs) {
      size_t index = 0;
      for (NodeId id : g->order) {
        const Region* region = g->node(id).region.get();
        if (!region || region->backend != "qnn") continue;
        if (index == groups.size()) groups.emplace_back();
        groups[index].emplace_back(g->name, region);
        place_[region] = index++;
      }
    }
    for (const auto& group : groups) {
      DT_ASSIGN_OR_RETURN(Binary binary, MakeContext(module, group));
      contexts_.push_back(std::move(binary));
    }
    return OkStatus();
  }

  Result<LoweredRegion> Lower(const Region& region) {
    const auto place = place_.find(&region);
    if (place == place_.end()) return Internal("a region that was not there at first");
    const Binary& binary = contexts_[place->second];
    LoweredRegion lowered;
    lowered.delegate_id = kQnnDelegateId;
    lowered.payload = binary.blob;
    lowered.payload_key = StrCat("qnn.", place->second);
    const Soc& soc = device_->soc();
    lowered.compile_specs.emplace_back(kQnnCompileSpecKey, QnnCompileSpec({soc.model, soc.arch, soc.vtcm_mb, binary.floats, binary.shared_weights}));
    return lowered;
  }

 private:
  struct Binary {
    std::vector<std::byte> blob;
    bool floats = false, shared_weights = false;
  };

  Result<Binary> MakeContext(const Module& module, const std::vector<std::pair<std::string, const Region*>>& group) {
    Binary result;
    result.shared_weights = share_weights_ && group.size() > 1;
    DT_ASSIGN_OR_RETURN(const std::unique_ptr<Context> context, Context::Create(device_, result.shared_weights));
    for (const auto& [name, region] : group) {
      result.floats |= UsesFloats(*region->body);
      DT_RETURN_IF_ERROR(MakeGraph(module, *context, name, *region->body).While(StrCat("making QNN graph '", name, "' for ", device_->soc().name)));
    }
    DT_ASSIGN_OR_RETURN(std::vector<std::byte> binary, context->Binary());
    result.blob = WriteQnnBlob(binary);
    return result;
  }

  Status MakeGraph(const Module& module, const Context& context, const std::string& name, const Graph& body) {
    DT_ASSIGN_OR_RETURN(const abi::Handle graph, AddGraph(module, body, context, name));
    Status s = Finalize(context, graph);
    if (s.ok()) return s;
    const NodeId id = FindRefusedNode(module, body, device_);
    if (id == kNone) return s;
    const Node& node = body.node(id);
    refuses_more_ |= refused_.emplace(SignatureOf(body, node), s.message()).second;
    return std::move(s).At(DescribeNode(body, node), DescribeSource(module, node));
  }

  std::shared_ptr<Device> device_;
  const bool share_weights_;
  std::vector<bool> angles_, large_;  // by node of the graph that was looked at last
  std::map<std::string, std::string> refused_;  // signatures of nodes for which graphs could not be made, and what the library said
  bool refuses_more_ = false;
  std::map<const Region*, size_t> place_;
  std::vector<Binary> contexts_;
};

}  // namespace
}  // namespace qnn

Backend MakeQnnBackend(std::shared_ptr<qnn::Device> device, bool share_weights) {
  auto compiler = std::make_shared<qnn::QnnCompiler>(std::move(device), share_weights);
  Backend b;
  b.name = "qnn";
  b.check = [compiler](const Module& m, const Graph& g, const Node& n) { return compiler->CheckNode(m, g, n); };
  b.look = [compiler](const Module& m, const Graph& g) { compiler->Look(m, g); };
  b.worthwhile = [](const Module&, const Graph& graph, std::span<const NodeId> nodes) {
    return std::any_of(nodes.begin(), nodes.end(), [&](NodeId id) { return !qnn::IsConversion(graph.node(id).op); });
  };
  b.begin = [compiler](const Module& m) { return compiler->Begin(m); };
  b.lower = [compiler](const Module&, const Region& r) { return compiler->Lower(r); };
  b.refuses_more = [compiler] { return compiler->RefusesMore(); };
  b.updates_in_place = [](const Module&, const Graph&, const Node&) { return true; };
  b.lowers = QnnLowers;
  return b;
}

bool QnnLowers(OpId op) { return qnn::FindLowering(op) != nullptr; }

}  // namespace dovetail
