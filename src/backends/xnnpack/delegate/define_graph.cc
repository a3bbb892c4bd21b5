#include "backends/xnnpack/delegate/define_graph.h"

#include <array>

#include "backends/xnnpack/delegate/block_weights_check.h"
#include "backends/xnnpack/delegate/define_node.h"

namespace dovetail {
namespace {

// The numbering of the wire format and of the library differ past 9.
xnn_datatype DatatypeOf(xn::XNNDatatype t) {
  switch (t) {
    case xn::XNNDatatype::xnn_datatype_fp32: return xnn_datatype_fp32;
    case xn::XNNDatatype::xnn_datatype_fp16: return xnn_datatype_fp16;
    case xn::XNNDatatype::xnn_datatype_qint8: return xnn_datatype_qint8;
    case xn::XNNDatatype::xnn_datatype_quint8: return xnn_datatype_quint8;
    case xn::XNNDatatype::xnn_datatype_qint32: return xnn_datatype_qint32;
    case xn::XNNDatatype::xnn_datatype_qcint8: return xnn_datatype_qcint8;
    case xn::XNNDatatype::xnn_datatype_qcint32: return xnn_datatype_qcint32;
    case xn::XNNDatatype::xnn_datatype_qcint4: return xnn_datatype_qcint4;
    case xn::XNNDatatype::xnn_datatype_qdint8: return xnn_datatype_qdint8;
    case xn::XNNDatatype::xnn_datatype_qbint4: return xnn_datatype_qbint4;
    case xn::XNNDatatype::xnn_datatype_qpint8: return xnn_datatype_qpint8;
    case xn::XNNDatatype::xnn_datatype_int32: return xnn_datatype_int32;
    case xn::XNNDatatype::xnn_datatype_pfp32: return xnn_datatype_pfp32;
    case xn::XNNDatatype::xnn_datatype_bf16: return xnn_datatype_bf16;
    default: return xnn_datatype_invalid;
  }
}

// What a caller's tensor of that type is; kNone for types that only exist inside.
DType DTypeOf(xn::XNNDatatype t) {
  switch (t) {
    case xn::XNNDatatype::xnn_datatype_fp32: return DType::kF32;
    case xn::XNNDatatype::xnn_datatype_fp16: return DType::kF16;
    case xn::XNNDatatype::xnn_datatype_bf16: return DType::kBF16;
    case xn::XNNDatatype::xnn_datatype_qint8: return DType::kI8;
    case xn::XNNDatatype::xnn_datatype_quint8: return DType::kU8;
    case xn::XNNDatatype::xnn_datatype_qint32:
    case xn::XNNDatatype::xnn_datatype_int32: return DType::kI32;
    default: return DType::kNone;
  }
}

class GraphDefiner {
 public:
  GraphDefiner(const XnnpackBlob& blob, const DelegateInitContext& ctx, WeightsCache* cache, const std::string& name)
      : blob_(blob), ctx_(ctx), cache_(cache), name_(name) {}

  Result<DefinedGraph> Run() {
    xnn_subgraph_t subgraph = nullptr;
    if (xnn_status s = xnn_create_subgraph(blob_.graph->num_externs(), 0, &subgraph); s != xnn_status_success)
      return Internal(name_, ": XNNPACK cannot make a graph: ", XnnStatusText(s));
    out_.subgraph.reset(subgraph);
    for (uint32_t i = 0; i < blob_.graph->xvalues()->size(); ++i) {
      Status s = Value(*blob_.graph->xvalues()->Get(i));
      if (!s.ok()) return Status(s.code(), StrCat(name_, ": xvalues[", i, "] ", s.message()));
    }
    for (uint32_t i = 0; i < blob_.graph->xnodes()->size(); ++i) {
      const xn::XNode& node = *blob_.graph->xnodes()->Get(i);
      Status s = DefineNode(subgraph, node, values_);
      if (!s.ok())
        return Status(s.code(), StrCat(name_, ": xnodes[", i, "] (", xn::EnumNameXNodeUnion(node.xnode_union_type()), ") ", s.message()));
    }
    FindPacked();
    return std::move(out_);
  }

 private:
  Result<std::span<const std::byte>> Constant(uint32_t index, uint64_t bytes, uint64_t alignment) {
    const xn::ConstantDataOffset& c = *blob_.graph->constant_data()->Get(index);
    if (!c.named_key() || c.named_key()->size() == 0) return blob_.constants.subspan(c.offset(), c.size());
    if (!ctx_.named_data) return NotFound("refers to '", c.named_key()->string_view(), "', but the program has no named data");
    DT_ASSIGN_OR_RETURN(const std::span<const std::byte> data, ctx_.named_data(c.named_key()->string_view()));
    if (data.size() < bytes) return Corrupt("needs ", bytes, " bytes, but '", c.named_key()->string_view(), "' has ", data.size());
    if (reinterpret_cast<uintptr_t>(data.data()) % alignment != 0)
      return Corrupt("refers to '", c.named_key()->string_view(), "', which is not aligned to ", alignment);
    out_.named.push_back(data);
    return data;
  }

  Status Value(const xn::XValue& value) {
    const xn::XNNQuantizedTensorValue* q = value.xvalue_union_as_XNNQuantizedTensorValue();
    const xn::XNNTensorValue& t = q ? *q->tensor_value() : *value.xvalue_union_as_XNNTensorValue();
    XnnValue v;
    v.tensor = &t;
    if (t.constant_buffer_idx() != 0) {
      DT_ASSIGN_OR_RETURN(const uint64_t bytes, XnnConstantBytes(t));
      DT_ASSIGN_OR_RETURN(v.bytes, Constant(t.constant_buffer_idx(), bytes, 4));
      v.data = v.bytes.data();
    }
    std::array<size_t, XNN_MAX_TENSOR_DIMS> dims{};
    for (uint32_t i = 0; i < t.num_dims(); ++i) dims[i] = t.dims()->Get(i);
    DT_RETURN_IF_ERROR(Define(t, q, dims.data(), v));
    if (t.external_id() != kXnnInvalidId) DT_RETURN_IF_ERROR(External(t));
    values_.emplace(t.id_out(), v);
    return OkStatus();
  }

  Status Define(const xn::XNNTensorValue& t, const xn::XNNQuantizedTensorValue* q, const size_t* dims, XnnValue& v) {
    const xnn_datatype type = DatatypeOf(t.datatype());
    xnn_status s;
    if (!q) {
      s = xnn_define_tensor_value(out_.subgraph.get(), type, t.num_dims(), dims, v.data, t.external_id(), t.flags(), &v.id);
    } else if (const auto* p = q->quant_params_as_PerTensorQuant()) {
      v.scale = p->scale();
      v.zero_point = p->zero_point();
      s = xnn_define_quantized_tensor_value(out_.subgraph.get(), type, p->zero_point(), p->scale(), t.num_dims(), dims, v.data,
                                            t.external_id(), t.flags(), &v.id);
    } else if (const auto* p = q->quant_params_as_PerTokenDynamicQuant()) {
      s = xnn_define_dynamically_quantized_tensor_value(
          out_.subgraph.get(), type, t.num_dims(), static_cast<size_t>(p->num_nonbatch_dims()), dims, t.external_id(), t.flags(), &v.id);
    } else if (const auto* p = q->quant_params_as_PerChannelQuant()) {
      v.scales = p->scale_buffer_idx() == 0 ? reinterpret_cast<const void*>(p->scale()->data()) : nullptr;
      if (p->scale_buffer_idx() != 0) {
        DT_ASSIGN_OR_RETURN(const auto scales, Constant(p->scale_buffer_idx(), uint64_t{p->num_scales()} * 4, 4));
        v.scales = scales.data();
        v.scale_bytes = scales;
      }
      s = xnn_define_channelwise_quantized_tensor_value_v2(
          out_.subgraph.get(), type, type == xnn_datatype_qcint4 ? 8 : 0, static_cast<const float*>(v.scales), t.num_dims(),
          static_cast<size_t>(p->channel_dim()), dims, v.data, t.external_id(), t.flags(), &v.id);
    } else {
      DT_RETURN_IF_ERROR(CheckBlockWeights());
      const auto* g = q->quant_params_as_PerChannelGroupQuant();
      if (g->scale_buffer_idx() != 0) {
        DT_ASSIGN_OR_RETURN(const auto scales, Constant(g->scale_buffer_idx(), uint64_t{g->num_scales()} * 2, 2));
        v.scales = scales.data();
        v.scale_bytes = scales;
      } else {
        const uint32_t n = g->scale()->size();
        auto scales = std::make_unique<uint16_t[]>(n);
        for (uint32_t i = 0; i < n; ++i) scales[i] = FloatToBFloat16(g->scale()->Get(i));
        v.scales = scales.get();
        out_.scales.push_back(std::move(scales));
        out_.use_cache = false;  // their address means nothing after this graph is gone
      }
      s = xnn_define_blockwise_quantized_tensor_value(out_.subgraph.get(), type, 8, static_cast<const uint16_t*>(v.scales), t.num_dims(),
                                                      static_cast<size_t>(g->channel_dim()), static_cast<size_t>(g->group_size()), dims,
                                                      v.data, t.external_id(), t.flags(), &v.id);
    }
    return s == xnn_status_success ? OkStatus() : Unsupported("XNNPACK refused it: ", XnnStatusText(s));
  }

  Status External(const xn::XNNTensorValue& t) {
    const bool output = t.flags() & XNN_VALUE_FLAG_EXTERNAL_OUTPUT;
    if (output == ((t.flags() & XNN_VALUE_FLAG_EXTERNAL_INPUT) != 0)) return Corrupt("must be either an input or an output of the graph");
    XnnExternal e{t.external_id(), output, DTypeOf(t.datatype()), {}};
    if (e.dtype == DType::kNone) return Unsupported("has datatype ", static_cast<int>(t.datatype()), ", which no argument can have");
    e.bounds.dtype = e.dtype;
    e.bounds.rank = static_cast<uint8_t>(t.num_dims());
    for (uint32_t i = 0; i < t.num_dims(); ++i) e.bounds.sizes[i] = t.dims()->Get(i);
    (output ? out_.outputs : out_.inputs).push_back(e);
    return OkStatus();
  }

  // A constant is done with if every node that reads it packs it.
  void FindPacked() {
    std::unordered_map<uint32_t, bool> packed;
    for (const xn::XNode* node : *blob_.graph->xnodes()) {
      const PackedOperands p = PackedOperandsOf(*node);
      for (uint32_t id : {p.filter, p.bias})
        if (id != kXnnInvalidId) packed.try_emplace(id, true);
      ForEachReadInput(*node, [&](uint32_t id) { packed[id] = false; });
      if (cache_ && p.filter != kXnnInvalidId && values_.at(p.filter).data && !cache_->Admit(Use(*node, p))) out_.use_cache = false;
    }
    for (const auto& [id, done] : packed) {
      const auto it = values_.find(id);
      if (it == values_.end() || !it->second.data) continue;
      (done ? out_.packed : out_.kept).push_back(it->second.bytes);
      if (done && !it->second.scale_bytes.empty()) out_.packed.push_back(it->second.scale_bytes);
    }
  }

  WeightUse Use(const xn::XNode& node, const PackedOperands& p) const {
    const XnnValue &f = values_.at(p.filter), &in = values_.at(p.input), &out = values_.at(p.output);
    WeightUse use;
    use.kernel = f.data;
    use.scales = f.scales;
    use.node_kind = static_cast<uint32_t>(node.xnode_union_type());
    use.flags = p.flags;
    use.groups = p.groups;
    use.datatype = static_cast<uint32_t>(f.tensor->datatype());
    use.rank = f.tensor->num_dims();
    for (uint32_t i = 0; i < use.rank; ++i) use.dims[i] = f.tensor->dims()->Get(i);
    if (p.bias != kXnnInvalidId) use.bias = values_.at(p.bias).data;
    // Of int8 convolutions and linears; they go into the packed form.
    use.input_scale = in.scale;
    use.input_zero_point = in.zero_point;
    use.output_scale = out.scale;
    return use;
  }

  const XnnpackBlob& blob_;
  const DelegateInitContext& ctx_;
  WeightsCache* cache_;
  const std::string& name_;
  XnnValues values_;
  DefinedGraph out_;
};

}  // namespace

std::string_view XnnStatusText(xnn_status status) {
  switch (status) {
    case xnn_status_success: return "success";
    case xnn_status_uninitialized: return "not initialized";
    case xnn_status_invalid_parameter: return "invalid parameter";
    case xnn_status_invalid_state: return "invalid state";
    case xnn_status_unsupported_parameter: return "unsupported parameter";
    case xnn_status_unsupported_hardware: return "unsupported hardware";
    case xnn_status_out_of_memory: return "out of memory";
    default: return "an unknown status";
  }
}

Result<DefinedGraph> DefineGraph(const XnnpackBlob& blob, const DelegateInitContext& ctx, WeightsCache* cache, const std::string& name) {
  return GraphDefiner(blob, ctx, cache, name).Run();
}

}  // namespace dovetail
