#include "backends/xnnpack/delegate/node_shapes.h"

#include <xnnpack.h>

#include <algorithm>

#include "backends/xnnpack/delegate/define_node.h"

namespace dovetail {
namespace {

using U = xn::XNodeUnion;

int64_t At(const XnnDims& d, size_t from_end) { return from_end <= d.size() ? d[d.size() - from_end] : 1; }

int64_t Count(const XnnDims& d) {
  int64_t n = 1;
  for (int64_t v : d) n *= v;
  return n;
}

XnnDims Broadcast(const XnnDims& a, const XnnDims& b) {
  XnnDims out(std::max(a.size(), b.size()));
  for (size_t i = 1; i <= out.size(); ++i) out[out.size() - i] = At(a, i) == 1 ? At(b, i) : At(a, i);
  return out;
}

// One spatial dim of a convolution or pooling.
int64_t Window(int64_t in, uint32_t padding, uint32_t kernel, uint32_t dilation, uint32_t stride, bool same) {
  const int64_t s = std::max<int64_t>(1, stride);
  if (same) return (in + s - 1) / s;
  return std::max<int64_t>(0, in + padding - int64_t{dilation} * (int64_t{kernel} - 1) - 1 + s) / s;
}

XnnDims Convolved(const XnnDims& in, const xn::XNNNodeConv& n, bool transposed) {
  const int64_t channels = int64_t{n.groups()} * n.group_output_channels();
  if (transposed) {
    const auto grown = [](int64_t size, uint32_t padding, uint32_t kernel, uint32_t dilation, uint32_t stride, uint32_t adjustment) {
      return int64_t{stride} * (size - 1) + adjustment + int64_t{dilation} * (int64_t{kernel} - 1) + 1 - padding;
    };
    return {At(in, 4),
            grown(At(in, 3), n.padding_top() + n.padding_bottom(), n.kernel_height(), n.dilation_height(), n.subsampling_height(),
                  n.adjustment_height()),
            grown(At(in, 2), n.padding_left() + n.padding_right(), n.kernel_width(), n.dilation_width(), n.subsampling_width(),
                  n.adjustment_width()),
            channels};
  }
  const bool same = n.flags() & XNN_FLAG_TENSORFLOW_SAME_PADDING;
  return {At(in, 4),
          Window(At(in, 3), n.padding_top() + n.padding_bottom(), n.kernel_height(), n.dilation_height(), n.subsampling_height(), same),
          Window(At(in, 2), n.padding_left() + n.padding_right(), n.kernel_width(), n.dilation_width(), n.subsampling_width(), same),
          channels};
}

XnnDims Pooled(const XnnDims& in, const xn::XNNPooling2D& n) {
  const bool same = n.flags() & XNN_FLAG_TENSORFLOW_SAME_PADDING;
  return {
      At(in, 4),
      Window(At(in, 3), n.padding_top() + n.padding_bottom(), n.pooling_height(), std::max(1u, n.dilation_height()), n.stride_height(),
             same),
      Window(At(in, 2), n.padding_left() + n.padding_right(), n.pooling_width(), std::max(1u, n.dilation_width()), n.stride_width(), same),
      At(in, 1)};
}

XnnDims Reshaped(const XnnDims& in, const xn::XNNStaticReshape& n) {
  XnnDims out;
  int64_t known = 1;
  size_t free = SIZE_MAX;
  for (uint32_t i = 0; n.new_shape() && i < n.new_shape()->size(); ++i) {
    out.push_back(n.new_shape()->Get(i));
    if (out.back() == 0) free = i;
    else known *= out.back();
  }
  if (free != SIZE_MAX) out[free] = known > 0 ? Count(in) / known : 0;
  return out;
}

XnnDims Sliced(XnnDims out, const xn::XNNStaticSlice& n) {
  for (uint32_t i = 0; i < out.size() && n.sizes() && i < n.sizes()->size(); ++i) {
    const int64_t offset = n.offsets() && i < n.offsets()->size() ? n.offsets()->Get(i) : 0;
    out[i] = n.sizes()->Get(i) != 0 ? n.sizes()->Get(i) : out[i] - offset;
  }
  return out;
}

// Of one element: 4-bit types are half a byte.
uint64_t Bits(xn::XNNDatatype t) {
  switch (t) {
    case xn::XNNDatatype::xnn_datatype_qcint4:
    case xn::XNNDatatype::xnn_datatype_qbint4: return 4;
    case xn::XNNDatatype::xnn_datatype_qint8:
    case xn::XNNDatatype::xnn_datatype_quint8:
    case xn::XNNDatatype::xnn_datatype_qcint8:
    case xn::XNNDatatype::xnn_datatype_qdint8:
    case xn::XNNDatatype::xnn_datatype_qpint8: return 8;
    case xn::XNNDatatype::xnn_datatype_fp16:
    case xn::XNNDatatype::xnn_datatype_bf16: return 16;
    default: return 32;
  }
}

}  // namespace

XnnNodeIo IoOf(const xn::XNode& node) {
  XnnNodeIo io;
  const auto add = [&](uint32_t id) {
    if (id != kXnnInvalidId) io.inputs.push_back(id);
  };
  const U kind = node.xnode_union_type();
  if (const PackedOperands p = PackedOperandsOf(node); p.filter != kXnnInvalidId) {
    for (uint32_t id : {p.input, p.filter, p.bias}) add(id);
    io.output = p.output;
    io.flags = p.flags;
    return io;
  }
  if (kind >= U::XNNConcatenate2 && kind <= U::XNNConcatenate4) {
    const auto* n = static_cast<const xn::XNNCat*>(node.xnode_union());
    const uint32_t ids[] = {n->input1_id(), n->input2_id(), n->input3_id(), n->input4_id()};
    const size_t count = 2 + static_cast<size_t>(kind) - static_cast<size_t>(U::XNNConcatenate2);
    for (size_t i = 0; i < count; ++i) add(ids[i]);
    io.output = n->output_id();
    return io;
  }
  ForEachReadInput(node, add);
  if (IsBinary(kind)) {
    io.output = static_cast<const xn::XNNNode2x1*>(node.xnode_union())->output_id();
    return io;
  }
  switch (kind) {
    case U::XNNConcatenate5: io.output = static_cast<const xn::XNNCat*>(node.xnode_union())->output_id(); break;
    case U::XNNScaledDotProductAttention: io.output = node.xnode_union_as_XNNScaledDotProductAttention()->output_id(); break;
    case U::XNNStaticTranspose: io.output = node.xnode_union_as_XNNStaticTranspose()->output_id(); break;
    case U::XNNStaticReshape: io.output = node.xnode_union_as_XNNStaticReshape()->output_id(); break;
    case U::XNNStaticSlice: io.output = node.xnode_union_as_XNNStaticSlice()->output_id(); break;
    case U::XNNStaticConstantPad: io.output = node.xnode_union_as_XNNStaticConstantPad()->output_id(); break;
    case U::XNNStaticResizeBilinear2D: io.output = node.xnode_union_as_XNNStaticResizeBilinear2D()->output_id(); break;
    case U::XNNLeakyReLU: io.output = node.xnode_union_as_XNNLeakyReLU()->output_id(); break;
    case U::XNNELU: io.output = node.xnode_union_as_XNNELU()->output_id(); break;
    case U::XNNAvgPooling2d:
    case U::XNNMaxPooling2d: io.output = static_cast<const xn::XNNPooling2D*>(node.xnode_union())->output_id(); break;
    case U::XNNArgMaxPooling2d: io.output = node.xnode_union_as_XNNArgMaxPooling2d()->output_value_id(); break;
    default: {
      const auto* n = static_cast<const xn::XNNNode1x1*>(node.xnode_union());
      io.output = n->output_id();
      io.flags = n->flags();
    }
  }
  return io;
}

NodeShapes::NodeShapes(const xn::XNNGraph& graph) : graph_(graph) {
  for (const xn::XValue* v : *graph.xvalues()) {
    const xn::XNNQuantizedTensorValue* q = v->xvalue_union_as_XNNQuantizedTensorValue();
    const xn::XNNTensorValue* t = q ? q->tensor_value() : v->xvalue_union_as_XNNTensorValue();
    Value value{t, q, {}};
    for (uint32_t i = 0; i < t->num_dims(); ++i) value.dims.push_back(t->dims()->Get(i));
    values_.emplace(t->id_out(), std::move(value));
  }
}

void NodeShapes::Infer(const std::function<std::span<const size_t>(uint32_t)>& sizes) {
  for (auto& [id, v] : values_) {
    v.dims.assign(v.tensor->num_dims(), 0);
    for (uint32_t i = 0; i < v.tensor->num_dims(); ++i) v.dims[i] = v.tensor->dims()->Get(i);
    if (v.tensor->external_id() == kXnnInvalidId || !(v.tensor->flags() & XNN_VALUE_FLAG_EXTERNAL_INPUT)) continue;
    const std::span<const size_t> given = sizes(v.tensor->external_id());
    if (given.size() == v.dims.size()) v.dims.assign(given.begin(), given.end());
  }
  for (const xn::XNode* node : *graph_.xnodes()) {
    const XnnNodeIo io = IoOf(*node);
    const auto out = values_.find(io.output);
    if (out == values_.end() || io.inputs.empty()) continue;
    if (XnnDims dims = OutputOf(*node, io); !dims.empty()) out->second.dims = std::move(dims);
  }
}

XnnDims NodeShapes::OutputOf(const xn::XNode& node, const XnnNodeIo& io) const {
  const XnnDims& in = dims(io.inputs[0]);
  if (IsBinary(node.xnode_union_type())) return Broadcast(in, dims(io.inputs[1]));
  switch (node.xnode_union_type()) {
    case U::XNNFullyConnected: {
      XnnDims out = in;
      const XnnDims& filter = dims(io.inputs[1]);
      if (!out.empty() && filter.size() == 2) out.back() = filter[io.flags & XNN_FLAG_TRANSPOSE_WEIGHTS ? 1 : 0];
      return out;
    }
    case U::XNNBatchMatrixMultiply: {
      XnnDims a = in, b = dims(io.inputs[1]);
      if (a.size() < 2 || b.size() < 2) return {};
      const int64_t rows = At(a, 2), columns = At(b, io.flags & XNN_FLAG_TRANSPOSE_B ? 2 : 1);
      a.resize(a.size() - 2);
      b.resize(b.size() - 2);
      XnnDims out = Broadcast(a, b);
      out.push_back(rows);
      out.push_back(columns);
      return out;
    }
    case U::XNNScaledDotProductAttention: {
      XnnDims out = in;
      if (!out.empty() && io.inputs.size() > 2) out.back() = At(dims(io.inputs[2]), 1);
      return out;
    }
    case U::XNNStaticTranspose: {
      const auto* perm = node.xnode_union_as_XNNStaticTranspose()->perm();
      XnnDims out;
      for (uint32_t i = 0; perm && i < perm->size() && perm->Get(i) < in.size(); ++i) out.push_back(in[perm->Get(i)]);
      return out;
    }
    case U::XNNStaticReshape: return Reshaped(in, *node.xnode_union_as_XNNStaticReshape());
    case U::XNNStaticSlice: return Sliced(in, *node.xnode_union_as_XNNStaticSlice());
    case U::XNNStaticConstantPad: {
      const auto* n = node.xnode_union_as_XNNStaticConstantPad();
      XnnDims out = in;
      for (uint32_t i = 0; i < out.size(); ++i) {
        if (n->pre_paddings() && i < n->pre_paddings()->size()) out[i] += n->pre_paddings()->Get(i);
        if (n->post_paddings() && i < n->post_paddings()->size()) out[i] += n->post_paddings()->Get(i);
      }
      return out;
    }
    case U::XNNConcatenate2:
    case U::XNNConcatenate3:
    case U::XNNConcatenate4:
    case U::XNNConcatenate5: {
      XnnDims out = in;
      const int64_t axis = static_cast<int32_t>(static_cast<const xn::XNNCat*>(node.xnode_union())->axis());
      const size_t at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(out.size()) : axis);
      for (size_t i = 1; i < io.inputs.size() && at < out.size(); ++i)
        if (const XnnDims& more = dims(io.inputs[i]); at < more.size()) out[at] += more[at];
      return out;
    }
    case U::XNNConv2d:
    case U::XNNDepthwiseConv2d: return Convolved(in, *static_cast<const xn::XNNNodeConv*>(node.xnode_union()), false);
    case U::XNNConvTranspose2d: return Convolved(in, *static_cast<const xn::XNNNodeConv*>(node.xnode_union()), true);
    case U::XNNAvgPooling2d:
    case U::XNNMaxPooling2d: return Pooled(in, *static_cast<const xn::XNNPooling2D*>(node.xnode_union()));
    case U::XNNGlobalAvgPooling2d: {
      if (in.size() < 3) return {};
      XnnDims out(in.begin(), in.end() - 3);
      if (io.flags & XNN_FLAG_KEEP_DIMS) out.insert(out.end(), {1, 1});
      out.push_back(in.back());
      return out;
    }
    case U::XNNStaticResizeBilinear2D: {
      const auto* n = node.xnode_union_as_XNNStaticResizeBilinear2D();
      return {At(in, 4), n->new_height(), n->new_width(), At(in, 1)};
    }
    case U::XNNArgMaxPooling2d: {
      const auto* n = node.xnode_union_as_XNNArgMaxPooling2d();
      return {At(in, 4), Window(At(in, 3), n->padding_top() + n->padding_bottom(), n->pooling_height(), 1, n->pooling_height(), false),
              Window(At(in, 2), n->padding_left() + n->padding_right(), n->pooling_width(), 1, n->pooling_width(), false), At(in, 1)};
    }
    default: return in;  // elementwise
  }
}

std::string NodeShapes::Text(uint32_t id) const {
  const std::string name = xn::EnumNameXNNDatatype(tensor(id).datatype()), prefix = "xnn_datatype_";
  std::string text = IsConstant(id) ? "constant " : "";
  text += (name.starts_with(prefix) ? name.substr(prefix.size()) : name) + "[";
  for (size_t i = 0; i < dims(id).size(); ++i) text += StrCat(i ? "," : "", dims(id)[i]);
  return text + "]";
}

uint64_t NodeShapes::Bytes(uint32_t id) const {
  uint64_t bytes = (static_cast<uint64_t>(Count(dims(id))) * Bits(tensor(id).datatype()) + 7) / 8;
  if (const auto* q = values_.at(id).quantized; q && IsConstant(id)) {
    if (const auto* p = q->quant_params_as_PerChannelQuant()) bytes += 4 * uint64_t{p->scale() ? p->scale()->size() : p->num_scales()};
    if (const auto* p = q->quant_params_as_PerChannelGroupQuant()) bytes += 2 * uint64_t{p->scale() ? p->scale()->size() : p->num_scales()};
  }
  return bytes;
}

uint64_t NodeShapes::Macs(const xn::XNode& node) const {
  const XnnNodeIo io = IoOf(node);
  if (io.inputs.empty() || io.output == kXnnInvalidId) return 0;
  const XnnDims &in = dims(io.inputs[0]), &out = dims(io.output);
  switch (node.xnode_union_type()) {
    case U::XNNFullyConnected:
    case U::XNNBatchMatrixMultiply: return static_cast<uint64_t>(Count(out) * At(in, 1));
    case U::XNNConv2d:
    case U::XNNDepthwiseConv2d:
    case U::XNNConvTranspose2d: {
      const auto& n = *static_cast<const xn::XNNNodeConv*>(node.xnode_union());
      const int64_t taps = int64_t{n.kernel_height()} * n.kernel_width();
      if (node.xnode_union_type() == U::XNNConvTranspose2d) return static_cast<uint64_t>(Count(in) * taps * n.group_output_channels());
      return static_cast<uint64_t>(Count(out) * taps * n.group_input_channels());
    }
    case U::XNNScaledDotProductAttention: {
      if (io.inputs.size() < 3) return 0;
      const XnnDims& key = dims(io.inputs[1]);
      return static_cast<uint64_t>(Count(in) / std::max<int64_t>(1, At(in, 1)) * At(key, 2) * (At(in, 1) + At(out, 1)));
    }
    default: return 0;
  }
}

}  // namespace dovetail
