#include "format/xnnpack_verify.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "format/xnnpack_blob.h"

namespace dovetail {
namespace {

using flatbuffers::Vector;

constexpr uint32_t kMaxDims = 6;  // XNN_MAX_TENSOR_DIMS
constexpr uint32_t kExternalInput = 1, kExternalOutput = 2;

// The ids by which a node names values, and its arrays whose length another field or the input's rank fixes.
struct Operands {
  std::array<uint32_t, 5> inputs;
  size_t input_count = 0;
  std::array<uint32_t, 2> outputs;
  size_t output_count = 0;
  void In(uint32_t id) { inputs[input_count++] = id; }
  void InUnlessNone(uint32_t id) {
    if (id != kXnnInvalidId) In(id);
  }
  void Out(uint32_t id) { outputs[output_count++] = id; }
};

struct ValueState {
  const xn::XNNTensorValue* tensor = nullptr;
  bool available = false;  // an external input, a constant, or already produced
};

class Checker {
 public:
  Checker(const xn::XNNGraph& graph, uint64_t budget, std::span<const std::byte> constants, const std::string& name)
      : graph_(graph), budget_(budget), constants_(constants), name_(name) {}

  Status Run() {
    if (!graph_.xvalues() || !graph_.xnodes()) return Bad("xvalues or xnodes is missing");
    if (graph_.num_externs() > graph_.xvalues()->size())
      return Bad("num_externs is ", graph_.num_externs(), ", but there are ", graph_.xvalues()->size(), " values");
    external_.assign(graph_.num_externs(), nullptr);
    DT_RETURN_IF_ERROR(ConstantTable());
    for (index_ = 0, kind_ = "xvalues"; index_ < graph_.xvalues()->size(); ++index_) DT_RETURN_IF_ERROR(Value(*graph_.xvalues()->Get(index_)));
    for (index_ = 0, kind_ = "xnodes"; index_ < graph_.xnodes()->size(); ++index_) DT_RETURN_IF_ERROR(Node(*graph_.xnodes()->Get(index_)));
    kind_ = nullptr;
    DT_RETURN_IF_ERROR(Externals(graph_.input_ids(), "input_ids", kExternalInput));
    DT_RETURN_IF_ERROR(Externals(graph_.output_ids(), "output_ids", kExternalOutput));
    for (const xn::XNNTensorValue* t : external_)
      if (t && (t->flags() & kExternalOutput) && !values_.at(t->id_out()).available) return Bad("no node writes the external output ", t->external_id());
    return OkStatus();
  }

 private:
  template <class... Ts>
  Status Bad(const Ts&... parts) const {
    if (kind_) return Corrupt(name_, ": XNNPACK graph: ", kind_, "[", index_, "]: ", parts...);
    return Corrupt(name_, ": XNNPACK graph: ", parts...);
  }
  template <class T>
  static uint32_t Size(const Vector<T>* v) { return v ? v->size() : 0; }
  // See the note on shared tables in pte_verify.cc.
  Status Spend(uint64_t items) {
    if (items > budget_) return Bad("tables share their contents in a way no writer produces");
    budget_ -= items;
    return OkStatus();
  }

  Status ConstantTable() {
    kind_ = "constant_data";
    for (index_ = 1; index_ < Size(graph_.constant_data()); ++index_) {
      const xn::ConstantDataOffset* c = graph_.constant_data()->Get(index_);
      if (c->named_key() && c->named_key()->size() > 0) {
        if (c->offset() != kXnnNoOffset) return Bad("has both a named_key and an offset");
      } else if (c->offset() > constants_.size() || c->size() > constants_.size() - c->offset()) {
        return Bad(c->size(), " bytes at offset ", c->offset(), " pass the end of the blob's constant data (", constants_.size(), " bytes)");
      }
    }
    kind_ = nullptr;
    return OkStatus();
  }

  // Constant `index` exists and has at least `bytes`, aligned to `alignment` if it is in the blob.
  Status Constant(uint32_t index, uint64_t bytes, uint64_t alignment, const char* field) const {
    if (index == 0 || index >= Size(graph_.constant_data()))
      return Bad(field, " is ", index, ", but constant_data has ", Size(graph_.constant_data()), " entries (the first is reserved)");
    const xn::ConstantDataOffset* c = graph_.constant_data()->Get(index);
    if (c->size() < bytes) return Bad(field, ": needs ", bytes, " bytes, but constant_data[", index, "] has ", c->size());
    if (c->offset() != kXnnNoOffset && reinterpret_cast<uintptr_t>(constants_.data() + c->offset()) % alignment != 0)
      return Bad(field, ": constant_data[", index, "] is not aligned to ", alignment);
    return OkStatus();
  }

  Status Value(const xn::XValue& value) {
    const xn::XNNTensorValue* t = value.xvalue_union_as_XNNTensorValue();
    const xn::XNNQuantizedTensorValue* q = value.xvalue_union_as_XNNQuantizedTensorValue();
    if (q) t = q->tensor_value();
    if (!t) return Bad("is of unknown kind ", static_cast<int>(value.xvalue_union_type()));
    if (t->datatype() <= xn::XNNDatatype::xnn_datatype_invalid || t->datatype() > xn::XNNDatatype::MAX)
      return Bad("datatype is ", static_cast<int>(t->datatype()));
    if (Size(t->dims()) != t->num_dims() || t->num_dims() > kMaxDims)
      return Bad("has num_dims ", t->num_dims(), " and ", Size(t->dims()), " dims (at most ", kMaxDims, ")");
    DT_RETURN_IF_ERROR(Spend(t->num_dims()));
    uint64_t elements = 1;
    for (uint32_t i = 0; i < t->num_dims(); ++i) {
      const uint64_t dim = t->dims()->Get(i);
      if (dim > 1 && elements > (uint64_t{1} << 48) / dim) return Bad("the product of dims overflows");
      if (dim > 1) elements *= dim;
    }
    if (t->id_out() == kXnnInvalidId) return Bad("has no id_out");
    if (!values_.emplace(t->id_out(), ValueState{t, (t->flags() & kExternalInput) != 0 || t->constant_buffer_idx() != 0}).second)
      return Bad("id_out ", t->id_out(), " is used twice");
    if (t->flags() & ~(kExternalInput | kExternalOutput)) return Bad("flags are ", t->flags());
    if (t->external_id() != kXnnInvalidId) {
      if (t->external_id() >= external_.size()) return Bad("external_id is ", t->external_id(), " of ", external_.size());
      if (external_[t->external_id()]) return Bad("external_id ", t->external_id(), " is used twice");
      external_[t->external_id()] = t;
    } else if (t->flags() != 0) {
      return Bad("is external but has no external_id");
    }
    if (t->constant_buffer_idx() != 0) {
      if (t->flags() != 0) return Bad("is both external and constant");
      auto bytes = XnnConstantBytes(*t);
      if (!bytes.ok()) return Bad(bytes.status().message());
      const bool four = *bytes > 0 && t->datatype() == xn::XNNDatatype::xnn_datatype_fp32;
      DT_RETURN_IF_ERROR(Constant(t->constant_buffer_idx(), *bytes, four ? 4 : 1, "constant_buffer_idx"));
    }
    return q ? Quantization(*q, *t) : OkStatus();
  }

  // Scales are inline f32, or `count` of `element` bytes each in a constant.
  Status Scales(const Vector<float>* scale, uint32_t buffer, uint32_t num_scales, uint64_t count, uint64_t element) {
    if (buffer == 0) {
      DT_RETURN_IF_ERROR(Spend(Size(scale)));
      if (Size(scale) != count) return Bad("has ", Size(scale), " scales, needs ", count);
      return OkStatus();
    }
    if (num_scales != count) return Bad("num_scales is ", num_scales, ", needs ", count);
    return Constant(buffer, count * element, element, "scale_buffer_idx");
  }

  Status Quantization(const xn::XNNQuantizedTensorValue& q, const xn::XNNTensorValue& t) {
    if (!q.quant_params()) return Bad("quant_params is missing");
    auto dim_ok = [&](int32_t dim) { return dim >= 0 && static_cast<uint32_t>(dim) < t.num_dims(); };
    if (q.quant_params_as_PerTensorQuant()) return OkStatus();
    if (auto* p = q.quant_params_as_PerTokenDynamicQuant()) {
      if (p->num_nonbatch_dims() < 0 || static_cast<uint32_t>(p->num_nonbatch_dims()) > t.num_dims())
        return Bad("num_nonbatch_dims is ", p->num_nonbatch_dims(), " for ", t.num_dims(), " dims");
      return OkStatus();
    }
    if (auto* p = q.quant_params_as_PerChannelQuant()) {
      if (!dim_ok(p->channel_dim())) return Bad("channel_dim is ", p->channel_dim(), " for ", t.num_dims(), " dims");
      return Scales(p->scale(), p->scale_buffer_idx(), p->num_scales(), t.dims()->Get(static_cast<uint32_t>(p->channel_dim())), 4);
    }
    if (auto* p = q.quant_params_as_PerChannelGroupQuant()) {
      if (!dim_ok(p->channel_dim()) || t.num_dims() != 2) return Bad("channel_dim is ", p->channel_dim(), " for ", t.num_dims(), " dims");
      const uint64_t channels = t.dims()->Get(static_cast<uint32_t>(p->channel_dim())), row = t.dims()->Get(p->channel_dim() == 0 ? 1 : 0);
      if (p->group_size() <= 0 || row % static_cast<uint64_t>(p->group_size()) != 0) return Bad("group_size ", p->group_size(), " does not divide ", row);
      return Scales(p->scale(), p->scale_buffer_idx(), p->num_scales(), channels * (row / static_cast<uint64_t>(p->group_size())), 2);
    }
    return Bad("quant_params are of unknown kind ", static_cast<int>(q.quant_params_type()));
  }

  Status Node(const xn::XNode& node) {
    if (!node.xnode_union()) return Bad("xnode_union is missing");
    Operands o;
    DT_RETURN_IF_ERROR(Gather(node, &o));
    for (size_t i = 0; i < o.input_count; ++i) {
      auto it = values_.find(o.inputs[i]);
      if (it == values_.end()) return Bad("reads value ", o.inputs[i], ", which does not exist");
      if (!it->second.available) return Bad("reads value ", o.inputs[i], " before a node writes it");
    }
    DT_RETURN_IF_ERROR(Arrays(node, o));
    for (size_t i = 0; i < o.output_count; ++i) {
      auto it = values_.find(o.outputs[i]);
      if (it == values_.end()) return Bad("writes value ", o.outputs[i], ", which does not exist");
      if (it->second.available) return Bad("writes value ", o.outputs[i], ", which is an input, a constant or already written");
      it->second.available = true;
    }
    return OkStatus();
  }

  template <class T>
  static const T& As(const xn::XNode& node) { return *static_cast<const T*>(node.xnode_union()); }

  template <class T>
  static void Unary(const xn::XNode& node, Operands* o) {
    o->In(As<T>(node).input_id());
    o->Out(As<T>(node).output_id());
  }

  Status Gather(const xn::XNode& node, Operands* o) const {
    using U = xn::XNodeUnion;
    switch (node.xnode_union_type()) {
      case U::XNNAdd: case U::XNNDiv: case U::XNNMinimum: case U::XNNMultiply: case U::XNNSubtract: case U::XNNMaximum:
      case U::XNNPReLU: case U::XNNBatchMatrixMultiply: {
        const auto& n = As<xn::XNNNode2x1>(node);
        o->In(n.input1_id());
        o->In(n.input2_id());
        o->Out(n.output_id());
        return OkStatus();
      }
      case U::XNNSoftmax: case U::XNNSigmoid: case U::XNNClamp: case U::XNNFloor: case U::XNNConvert: case U::XNNGlobalAvgPooling2d:
      case U::XNNSquareRoot: case U::XNNCeiling: case U::XNNHardswish: case U::XNNNegate: case U::XNNSquare: case U::XNNAbs:
      case U::XNNReciprocalSquareRoot: case U::XNNLog: case U::XNNGelu: case U::XNNTanh: case U::XNNExp: case U::XNNSin: case U::XNNCopy:
      case U::XNNCos: Unary<xn::XNNNode1x1>(node, o); return OkStatus();
      case U::XNNStaticTranspose: Unary<xn::XNNStaticTranspose>(node, o); return OkStatus();
      case U::XNNStaticResizeBilinear2D: Unary<xn::XNNStaticResizeBilinear2D>(node, o); return OkStatus();
      case U::XNNStaticConstantPad: Unary<xn::XNNStaticConstantPad>(node, o); return OkStatus();
      case U::XNNStaticReshape: Unary<xn::XNNStaticReshape>(node, o); return OkStatus();
      case U::XNNStaticSlice: Unary<xn::XNNStaticSlice>(node, o); return OkStatus();
      case U::XNNLeakyReLU: Unary<xn::XNNLeakyReLU>(node, o); return OkStatus();
      case U::XNNELU: Unary<xn::XNNELU>(node, o); return OkStatus();
      case U::XNNAvgPooling2d: case U::XNNMaxPooling2d: Unary<xn::XNNPooling2D>(node, o); return OkStatus();
      case U::XNNFullyConnected: {
        const auto& n = As<xn::XNNFullyConnected>(node);
        o->In(n.input1_id());
        o->In(n.filter_id());
        o->InUnlessNone(n.bias_id());
        o->Out(n.output_id());
        return OkStatus();
      }
      case U::XNNConv2d: case U::XNNDepthwiseConv2d: case U::XNNConvTranspose2d: {
        const auto& n = As<xn::XNNNodeConv>(node);
        o->In(n.input1_id());
        o->In(n.filter_id());
        o->InUnlessNone(n.bias_id());
        o->Out(n.output_id());
        return OkStatus();
      }
      case U::XNNConcatenate2: case U::XNNConcatenate3: case U::XNNConcatenate4: case U::XNNConcatenate5: {
        const auto& n = As<xn::XNNCat>(node);
        const int count =
            node.xnode_union_type() == U::XNNConcatenate5 ? 5 : 2 + static_cast<int>(node.xnode_union_type()) - static_cast<int>(U::XNNConcatenate2);
        const uint32_t ids[] = {n.input1_id(), n.input2_id(), n.input3_id(), n.input4_id(), n.input5_id()};
        for (int i = 0; i < count; ++i) o->In(ids[i]);
        o->Out(n.output_id());
        return OkStatus();
      }
      case U::XNNScaledDotProductAttention: {
        const auto& n = As<xn::XNNScaledDotProductAttention>(node);
        for (uint32_t id : {n.query_id(), n.key_id(), n.value_id(), n.scale_id(), n.mask_id()}) o->In(id);
        o->Out(n.output_id());
        return OkStatus();
      }
      case U::XNNArgMaxPooling2d: {
        const auto& n = As<xn::XNNArgMaxPooling2d>(node);
        o->In(n.input_id());
        o->Out(n.output_value_id());
        o->Out(n.output_index_id());
        return OkStatus();
      }
      default: return Bad("is of unknown kind ", static_cast<int>(node.xnode_union_type()));
    }
  }

  // Arrays that go to XNNPACK as bare pointers must be as long as it assumes.
  Status Arrays(const xn::XNode& node, const Operands& o) {
    const uint32_t rank = o.input_count ? values_.at(o.inputs[0]).tensor->num_dims() : 0;
    auto length = [&](const Vector<uint32_t>* v, uint32_t want, const char* field) {
      return Size(v) == want && want <= kMaxDims ? OkStatus() : Bad(field, " has ", Size(v), " entries, needs ", want, " (at most ", kMaxDims, ")");
    };
    if (auto* n = node.xnode_union_as_XNNStaticTranspose()) {
      if (n->num_dims() != rank) return Bad("num_dims is ", n->num_dims(), " for an input of ", rank, " dims");
      DT_RETURN_IF_ERROR(length(n->perm(), rank, "perm"));
      uint32_t seen = 0;
      for (uint32_t i = 0; i < rank; ++i) {
        const uint32_t d = n->perm()->Get(i);
        if (d >= rank || (seen >> d & 1)) return Bad("perm is not a permutation");
        seen |= 1u << d;
      }
    } else if (auto* n = node.xnode_union_as_XNNStaticConstantPad()) {
      DT_RETURN_IF_ERROR(length(n->pre_paddings(), rank, "pre_paddings"));
      DT_RETURN_IF_ERROR(length(n->post_paddings(), rank, "post_paddings"));
    } else if (auto* n = node.xnode_union_as_XNNStaticReshape()) {
      DT_RETURN_IF_ERROR(length(n->new_shape(), n->num_dims(), "new_shape"));
    } else if (auto* n = node.xnode_union_as_XNNStaticSlice()) {
      if (n->num_dims() != rank) return Bad("num_dims is ", n->num_dims(), " for an input of ", rank, " dims");
      DT_RETURN_IF_ERROR(length(n->offsets(), rank, "offsets"));
      DT_RETURN_IF_ERROR(length(n->sizes(), rank, "sizes"));
    }
    return OkStatus();
  }

  Status Externals(const Vector<uint32_t>* ids, const char* field, uint32_t flag) {
    DT_RETURN_IF_ERROR(Spend(Size(ids)));
    for (uint32_t i = 0; i < Size(ids); ++i) {
      const uint32_t id = ids->Get(i);
      const auto it = values_.find(id);
      if (it == values_.end() || it->second.tensor->external_id() == kXnnInvalidId) return Bad(field, "[", i, "] is ", id, ", which is no external value");
      if (!(it->second.tensor->flags() & flag)) return Bad(field, "[", i, "]: the flags of value ", id, " do not say so");
    }
    return OkStatus();
  }

  const xn::XNNGraph& graph_;
  uint64_t budget_;
  const std::span<const std::byte> constants_;
  const std::string& name_;
  std::unordered_map<uint32_t, ValueState> values_;
  std::vector<const xn::XNNTensorValue*> external_;
  const char* kind_ = nullptr;
  uint32_t index_ = 0;
};

}  // namespace

Status VerifyXnnGraph(const xn::XNNGraph& graph, uint64_t graph_bytes, std::span<const std::byte> constants, const std::string& name) {
  return Checker(graph, graph_bytes, constants, name).Run();
}

}  // namespace dovetail
