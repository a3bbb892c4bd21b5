// Lowering's second half: the nodes and values it collected, as a blob.
#include <algorithm>
#include <iterator>

#include "backends/xnnpack/lowering.h"
#include "format/xnnpack_blob.h"

namespace dovetail::xnnpack {
namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

// The numbers of a convolution and of a pooling stand in `a` in the order of the table's fields.
Offset<void> WriteNode(FlatBufferBuilder& b, const XnnNode& n) {
  switch (n.kind) {
    case Kind::XNNAdd:
    case Kind::XNNSubtract:
    case Kind::XNNMultiply:
    case Kind::XNNDiv:
    case Kind::XNNMinimum:
    case Kind::XNNMaximum:
    case Kind::XNNBatchMatrixMultiply: return xn::CreateXNNNode2x1(b, n.in[0], n.in[1], n.out, n.flags).Union();
    case Kind::XNNFullyConnected: return xn::CreateXNNFullyConnected(b, n.in[0], n.in[1], n.in[2], n.out, n.flags).Union();
    case Kind::XNNStaticTranspose:
      return xn::CreateXNNStaticTranspose(b, static_cast<uint32_t>(n.a.size()), b.CreateVector(n.a), n.in[0], n.out, n.flags).Union();
    case Kind::XNNStaticReshape:
      return xn::CreateXNNStaticReshape(b, static_cast<uint32_t>(n.a.size()), b.CreateVector(n.a), n.in[0], n.out, n.flags).Union();
    case Kind::XNNStaticSlice: {
      const auto offsets = b.CreateVector(n.a), sizes = b.CreateVector(n.b);
      return xn::CreateXNNStaticSlice(b, static_cast<uint32_t>(n.a.size()), offsets, sizes, n.in[0], n.out, n.flags).Union();
    }
    case Kind::XNNStaticConstantPad: {
      const auto before = b.CreateVector(n.a), after = b.CreateVector(n.b);
      return xn::CreateXNNStaticConstantPad(b, before, after, n.number, n.in[0], n.out, n.flags).Union();
    }
    case Kind::XNNConcatenate2:
    case Kind::XNNConcatenate3:
    case Kind::XNNConcatenate4:
    case Kind::XNNConcatenate5:
      return xn::CreateXNNCat(b, static_cast<uint32_t>(n.axis), n.in[0], n.in[1], n.in[2], n.in[3], n.out, n.flags, n.in[4]).Union();
    case Kind::XNNConv2d:
    case Kind::XNNDepthwiseConv2d:
    case Kind::XNNConvTranspose2d:
      return xn::CreateXNNNodeConv(b, n.a[0], n.a[1], n.a[2], n.a[3], n.a[4], n.a[5], n.a[6], n.a[7], n.a[8], n.a[9], n.a[10], n.a[11],
                                   n.a[12], n.a[13], n.a[14], n.in[0], n.in[1], n.in[2], n.out, n.flags)
          .Union();
    case Kind::XNNMaxPooling2d:
    case Kind::XNNAvgPooling2d:
      return xn::CreateXNNPooling2D(b, n.a[0], n.a[1], n.a[2], n.a[3], n.a[4], n.a[5], n.a[6], n.a[7], n.a[8], n.a[9], n.in[0], n.out,
                                    n.flags)
          .Union();
    default: return xn::CreateXNNNode1x1(b, n.in[0], n.out, n.flags).Union();
  }
}

Offset<void> WriteParams(FlatBufferBuilder& b, const XnnType& t, uint32_t scales) {
  switch (t.params) {
    case xn::XNNQuantParams::PerTensorQuant: return xn::CreatePerTensorQuant(b, t.scale, t.zero_point).Union();
    case xn::XNNQuantParams::PerTokenDynamicQuant: return xn::CreatePerTokenDynamicQuant(b, t.row_dims).Union();
    case xn::XNNQuantParams::PerChannelQuant: return xn::CreatePerChannelQuant(b, 0, t.channel_dim, scales, t.num_scales).Union();
    default: {
      xn::PerChannelGroupQuantBuilder params(b);
      params.add_channel_dim(t.channel_dim);
      params.add_group_size(t.block);
      params.add_scale_buffer_idx(scales);
      params.add_num_scales(t.num_scales);
      return params.Finish().Union();
    }
  }
}

}  // namespace

std::vector<uint32_t> Lowering::Sizes(const Shape& shape) {
  std::vector<uint32_t> sizes;
  for (Dim d : shape) sizes.push_back(static_cast<uint32_t>(UpperBound(d)));
  return sizes;
}

void Lowering::RemoveDeadNodes() {
  std::vector<bool> used(values_.size(), false);
  for (Id id = 0; id < values_.size(); ++id) used[id] = values_[id].output;
  std::vector<XnnNode> kept;
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    if (!used[node->out]) continue;
    for (Id id : node->in)
      if (id != kNoId) used[id] = true;
    kept.push_back(std::move(*node));
  }
  nodes_.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
}

Result<LoweredRegion> Lowering::Finish() {
  const uint32_t num_inputs = static_cast<uint32_t>(graph_.inputs.size()), num_outputs = static_cast<uint32_t>(graph_.outputs.size());
  for (uint32_t i = 0; i < num_outputs; ++i) {
    Id id = Operand(graph_.outputs[i]);
    // What is an argument or a constant already must be copied to be an output too.
    if (values_[id].external != kNoId || values_[id].constant != 0) id = Unary(Kind::XNNCopy, id, xnn_type(id));
    values_[id].external = num_inputs + i;
    values_[id].output = true;
  }
  DT_RETURN_IF_ERROR(status());
  RemoveDeadNodes();
  LoweredRegion region;
  region.delegate_id = kXnnpackDelegateId;
  DT_ASSIGN_OR_RETURN(region.payload, Serialize(num_inputs, num_outputs));
  region.shared = std::move(shared_);
  return region;
}

Result<std::vector<std::byte>> Lowering::Serialize(uint32_t num_inputs, uint32_t num_outputs) {
  // Arguments come first, so that a value's id is its argument's position; values that nothing uses any more are left out.
  std::vector<bool> used(values_.size(), false);
  for (const XnnNode& n : nodes_) {
    used[n.out] = true;
    for (Id id : n.in)
      if (id != kNoId) used[id] = true;
  }
  std::vector<Id> order;
  for (Id id = 0; id < values_.size(); ++id)
    if (used[id] || values_[id].external != kNoId) order.push_back(id);
  std::stable_sort(order.begin(), order.end(), [&](Id a, Id b) { return values_[a].external < values_[b].external; });
  std::vector<Id> renamed(values_.size(), kNoId);
  for (size_t i = 0; i < order.size(); ++i) renamed[order[i]] = static_cast<Id>(i);

  FlatBufferBuilder b;
  XnnConstants data;
  std::vector<Offset<xn::ConstantDataOffset>> constants = {xn::CreateConstantDataOffsetDirect(b, 0, 0, "")};
  std::vector<uint32_t> constant_index(constants_.size(), 0);
  const auto store = [&](uint32_t index) {
    if (index == 0 || constant_index[index] != 0) return;
    XnnConstant& c = constants_[index];
    constant_index[index] = static_cast<uint32_t>(constants.size());
    // An absent key tells readers that the data are in the blob.
    if (c.key.empty()) constants.push_back(xn::CreateConstantDataOffset(b, data.Add(Payload::Owned(std::move(c.bytes))), c.size));
    else constants.push_back(xn::CreateConstantDataOffsetDirect(b, kXnnNoOffset, c.size, c.key.c_str()));
  };
  std::vector<Offset<xn::XValue>> values;
  for (Id id : order) {
    const XnnValue& v = values_[id];
    store(v.constant);
    store(v.type.scales);
    const std::vector<uint32_t> sizes = Sizes(v.shape);
    const uint32_t flags = v.external == kNoId ? 0 : v.output ? 2 : 1;
    const auto tensor = xn::CreateXNNTensorValueDirect(b, v.type.datatype, static_cast<uint32_t>(sizes.size()), &sizes, constant_index[v.constant],
                                                       v.external, flags, renamed[id]);
    if (v.type.params == xn::XNNQuantParams::NONE) {
      values.push_back(xn::CreateXValue(b, xn::XValueUnion::XNNTensorValue, tensor.Union()));
      continue;
    }
    const Offset<void> params = WriteParams(b, v.type, constant_index[v.type.scales]);
    const auto quantized = xn::CreateXNNQuantizedTensorValue(b, tensor, v.type.params, params);
    values.push_back(xn::CreateXValue(b, xn::XValueUnion::XNNQuantizedTensorValue, quantized.Union()));
  }
  std::vector<Offset<xn::XNode>> nodes;
  for (XnnNode& n : nodes_) {
    for (Id& id : n.in)
      if (id != kNoId) id = renamed[id];
    n.out = renamed[n.out];
    const Offset<void> node = WriteNode(b, n);
    const auto range = n.ranged ? xn::CreateOutputMinMax(b, n.min, n.max) : 0;
    nodes.push_back(xn::CreateXNode(b, n.kind, node, 0, range));
  }
  DT_RETURN_IF_ERROR(status());
  std::vector<uint32_t> inputs(num_inputs), outputs(num_outputs);
  for (uint32_t i = 0; i < num_inputs; ++i) inputs[i] = i;
  for (uint32_t i = 0; i < num_outputs; ++i) outputs[i] = num_inputs + i;
  b.Finish(xn::CreateXNNGraphDirect(b, "0", &nodes, &values, num_inputs + num_outputs, &inputs, &outputs, &constants),
           xn::XNNGraphIdentifier());
  VectorSink sink;
  const Payload blob = WriteXnnpackBlob({b.GetBufferPointer(), b.GetSize()}, std::move(data));
  sink.bytes.reserve(blob.size);
  DT_RETURN_IF_ERROR(blob.write(sink));
  return std::move(sink.bytes);
}

}  // namespace dovetail::xnnpack
