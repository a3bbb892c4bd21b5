#include "backends/xnnpack/delegate/node_profile.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "backends/xnnpack/delegate/define_graph.h"
#include "backends/xnnpack/delegate/define_node.h"

namespace dovetail {
namespace {

using U = xn::XNodeUnion;

// What XNNPACK's names of operators tell, and nodes too.
enum class Class {
  kFullyConnected, kMatmul, kConvolution, kDeconvolution, kAttention, kSoftmax, kPooling, kReduce,  // with loops of their own
  kTranspose, kSlice, kPad, kResize, kCopy,                                                         // that move elements
  kBinary, kUnary,                                                                                  // elementwise
};

// By the start of an operator's name; the first that fits. What is in none is elementwise with one operand.
constexpr std::pair<std::string_view, Class> kOperators[] = {
    {"Fully Connected", Class::kFullyConnected},
    {"Dynamic Fully Connected", Class::kFullyConnected},
    {"Batch Matrix Multiply", Class::kMatmul},
    {"Convolution", Class::kConvolution},
    {"Deconvolution", Class::kDeconvolution},
    {"Scaled Dot-Product Attention", Class::kAttention},
    {"Softmax", Class::kSoftmax},
    {"Average Pooling", Class::kPooling},
    {"Max Pooling", Class::kPooling},
    {"ArgMax Pooling", Class::kPooling},
    {"Global Average Pooling", Class::kReduce},
    {"Mean", Class::kReduce},
    {"Sum", Class::kReduce},
    {"Transpose", Class::kTranspose},
    {"Slice", Class::kSlice},
    {"Constant Pad", Class::kPad},
    {"Resize Bilinear", Class::kResize},
    {"Copy (", Class::kCopy},
    {"Binary Elementwise", Class::kBinary},
    {"Add", Class::kBinary},
    {"Subtract", Class::kBinary},
    {"Multiply", Class::kBinary},
    {"Divide", Class::kBinary},
    {"Maximum", Class::kBinary},
    {"Minimum", Class::kBinary},
    {"PReLU", Class::kBinary},
};

Class ClassOf(std::string_view name) {
  for (const auto& [start, c] : kOperators)
    if (name.starts_with(start)) return c;
  return Class::kUnary;
}

Class ClassOf(U kind) {
  switch (kind) {
    case U::XNNFullyConnected: return Class::kFullyConnected;
    case U::XNNBatchMatrixMultiply: return Class::kMatmul;
    case U::XNNConv2d:
    case U::XNNDepthwiseConv2d: return Class::kConvolution;
    case U::XNNConvTranspose2d: return Class::kDeconvolution;
    case U::XNNScaledDotProductAttention: return Class::kAttention;
    case U::XNNSoftmax: return Class::kSoftmax;
    case U::XNNAvgPooling2d:
    case U::XNNMaxPooling2d:
    case U::XNNArgMaxPooling2d: return Class::kPooling;
    case U::XNNGlobalAvgPooling2d: return Class::kReduce;
    case U::XNNStaticTranspose: return Class::kTranspose;
    case U::XNNStaticSlice: return Class::kSlice;
    case U::XNNStaticConstantPad: return Class::kPad;
    case U::XNNStaticResizeBilinear2D: return Class::kResize;
    case U::XNNCopy:
    case U::XNNStaticReshape:
    case U::XNNConcatenate2:
    case U::XNNConcatenate3:
    case U::XNNConcatenate4:
    case U::XNNConcatenate5: return Class::kCopy;
    default: return IsBinary(kind) ? Class::kBinary : Class::kUnary;
  }
}

Status Failed(xnn_status s) { return Internal(kXnnpackDelegateId, ": reading the times of nodes failed: ", XnnStatusText(s)); }

}  // namespace

Result<std::unique_ptr<NodeProfile>> NodeProfile::Create(const xn::XNNGraph& graph, xnn_runtime_t runtime, Profiler* profiler) {
  std::unique_ptr<NodeProfile> self(new NodeProfile(graph, profiler));
  size_t count = 0, size = 0;
  if (xnn_status s = xnn_get_runtime_profiling_info(runtime, xnn_profile_info_num_operators, sizeof count, &count, &size);
      s != xnn_status_success)
    return Failed(s);
  size = 0;
  xnn_status s = xnn_get_runtime_profiling_info(runtime, xnn_profile_info_operator_name, 0, nullptr, &size);
  std::string names(size, '\0');
  if (s == xnn_status_out_of_memory) s = xnn_get_runtime_profiling_info(runtime, xnn_profile_info_operator_name, size, names.data(), &size);
  if (s != xnn_status_success) return Failed(s);
  for (size_t at = 0; self->operators_.size() < count && at < names.size();) {
    const std::string name = names.c_str() + at;
    self->operators_.push_back({name, name, static_cast<uint32_t>(self->operators_.size())});
    at += name.size() + 1;
  }
  self->microseconds_.resize(count);
  self->operators_.resize(count);
  self->MatchNodes();
  return self;
}

// XNNPACK tells operators' names in the order of nodes, without those that it fused into others.
void NodeProfile::MatchNodes() {
  const auto& nodes = *graph_.xnodes();
  std::vector<uint32_t> node_of;
  uint32_t next = 0;
  for (const Operator& op : operators_) {
    const Class wanted = ClassOf(op.made);
    while (next < nodes.size() && ClassOf(nodes.Get(next)->xnode_union_type()) != wanted) ++next;
    if (next == nodes.size()) return;  // a version that splits nodes: the names are all that is known
    node_of.push_back(next++);
  }
  known_ = true;
  for (size_t i = 0; i < operators_.size(); ++i) {
    Operator& op = operators_[i];
    op.node = node_of[i];
    const std::string kind = xn::EnumNameXNodeUnion(nodes.Get(op.node)->xnode_union_type());
    const size_t types = op.made.find(" (");
    op.name = kind.substr(kind.starts_with("XNN") ? 3 : 0) + (types == std::string::npos ? "" : op.made.substr(types));
  }
}

Status NodeProfile::Record(xnn_runtime_t runtime, int64_t start_ns, const std::function<std::span<const size_t>(uint32_t)>& sizes) {
  size_t size = 0;
  const size_t room = microseconds_.size() * sizeof(uint64_t);
  if (xnn_status s = xnn_get_runtime_profiling_info(runtime, xnn_profile_info_operator_timing, room, microseconds_.data(), &size);
      s != xnn_status_success)
    return Failed(s);
  const bool describe = profiler_->describing();
  if (describe && known_) shapes_.Infer(sizes);
  for (size_t i = 0; i < operators_.size(); ++i) {
    const int64_t end_ns = start_ns + static_cast<int64_t>(microseconds_[i]) * 1000;
    profiler_->RecordNode(operators_[i].name, operators_[i].node, start_ns, end_ns);
    if (describe) profiler_->Describe(Describe(operators_[i]));
    start_ns = end_ns;
  }
  return OkStatus();
}

Profiler::Detail NodeProfile::Describe(const Operator& op) const {
  Profiler::Detail d;
  d.op = op.made;
  if (!known_) return d;
  const xn::XNode& node = *graph_.xnodes()->Get(op.node);
  const XnnNodeIo io = IoOf(node);
  for (size_t i = 0; i < io.inputs.size(); ++i) {
    const uint32_t id = io.inputs[i];
    d.inputs.push_back(shapes_.Text(id));
    if (std::find(io.inputs.begin(), io.inputs.begin() + static_cast<std::ptrdiff_t>(i), id) !=
        io.inputs.begin() + static_cast<std::ptrdiff_t>(i))
      continue;
    const uint64_t bytes = shapes_.Bytes(id);
    d.bytes += bytes;
    if (!shapes_.IsConstant(id)) continue;
    d.constant_bytes += bytes;
    const auto* key = graph_.constant_data()->Get(shapes_.tensor(id).constant_buffer_idx())->named_key();
    if (!d.layer.empty() || !key || key->size() == 0) continue;
    const std::string_view name = key->string_view(), prefix = "weight:";
    d.layer = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  }
  if (io.output != kXnnInvalidId) {
    d.outputs.push_back(shapes_.Text(io.output));
    d.bytes += shapes_.Bytes(io.output);
  }
  d.macs = shapes_.Macs(node);
  if (node.xnode_union_type() == U::XNNStaticReshape) d.bytes = 0;  // runs in place where XNNPACK's memory plan lets it
  return d;
}

}  // namespace dovetail
