#include "backends/xnnpack/delegate/define_node.h"

#include <array>
#include <cmath>
#include <span>

#include "backends/xnnpack/delegate/convolution_check.h"
#include "backends/xnnpack/delegate/define_graph.h"
#include "format/xnnpack_blob.h"

namespace dovetail {
namespace {

using U = xn::XNodeUnion;

struct Dims {
  std::array<size_t, XNN_MAX_TENSOR_DIMS> d{};
  explicit Dims(const flatbuffers::Vector<uint32_t>* v) {
    for (uint32_t i = 0; v && i < v->size() && i < d.size(); ++i) d[i] = v->Get(i);
  }
  const size_t* data() const { return d.data(); }
};

xnn_unary_operator UnaryOf(U kind) {
  switch (kind) {
    case U::XNNSigmoid: return xnn_unary_sigmoid;
    case U::XNNClamp: return xnn_unary_clamp;
    case U::XNNFloor: return xnn_unary_floor;
    case U::XNNConvert: return xnn_unary_convert;
    case U::XNNSquareRoot: return xnn_unary_square_root;
    case U::XNNCeiling: return xnn_unary_ceiling;
    case U::XNNHardswish: return xnn_unary_hardswish;
    case U::XNNLeakyReLU: return xnn_unary_leaky_relu;
    case U::XNNNegate: return xnn_unary_negate;
    case U::XNNSquare: return xnn_unary_square;
    case U::XNNELU: return xnn_unary_elu;
    case U::XNNAbs: return xnn_unary_abs;
    case U::XNNReciprocalSquareRoot: return xnn_unary_reciprocal_square_root;
    case U::XNNLog: return xnn_unary_log;
    case U::XNNGelu: return xnn_unary_gelu;
    case U::XNNTanh: return xnn_unary_tanh;
    case U::XNNExp: return xnn_unary_exp;
    case U::XNNSin: return xnn_unary_sine;
    case U::XNNCos: return xnn_unary_cosine;
    default: return xnn_unary_invalid;
  }
}

xnn_binary_operator BinaryOf(U kind) {
  switch (kind) {
    case U::XNNAdd: return xnn_binary_add;
    case U::XNNSubtract: return xnn_binary_subtract;
    case U::XNNMultiply: return xnn_binary_multiply;
    case U::XNNDiv: return xnn_binary_divide;
    case U::XNNMinimum: return xnn_binary_minimum;
    case U::XNNMaximum: return xnn_binary_maximum;
    case U::XNNPReLU: return xnn_binary_prelu;
    default: return xnn_binary_invalid;
  }
}

class Definer {
 public:
  Definer(xnn_subgraph_t subgraph, const xn::XNode& node, const XnnValues& values) : graph_(subgraph), node_(node), values_(values) {
    if (const xn::OutputMinMax* range = node.output_min_max()) {
      min_ = range->output_min();
      max_ = range->output_max();
    }
  }

  Status Run() {
    const U kind = node_.xnode_union_type();
    if (UnaryOf(kind) != xnn_unary_invalid) return Unary(UnaryOf(kind));
    if (BinaryOf(kind) != xnn_binary_invalid) {
      const auto& n = As<xn::XNNNode2x1>();
      const xnn_binary_params params{min_, max_};
      return Done(xnn_define_binary(graph_, BinaryOf(kind), &params, Id(n.input1_id()), Id(n.input2_id()), Id(n.output_id()), n.flags()));
    }
    switch (kind) {
      case U::XNNFullyConnected: return FullyConnected(As<xn::XNNFullyConnected>());
      case U::XNNConv2d:
      case U::XNNDepthwiseConv2d:
      case U::XNNConvTranspose2d: return Conv(kind, As<xn::XNNNodeConv>());
      case U::XNNBatchMatrixMultiply: {
        const auto& n = As<xn::XNNNode2x1>();
        if (Rank(n.input1_id()) < 2 || Rank(n.input2_id()) < 2) return Corrupt("has an operand of less than 2 dims");
        return Done(xnn_define_batch_matrix_multiply(graph_, Id(n.input1_id()), Id(n.input2_id()), Id(n.output_id()), n.flags()));
      }
      case U::XNNSoftmax: {
        const auto& n = As<xn::XNNNode1x1>();
        if (Rank(n.input_id()) < 1) return Corrupt("has an input of no dims");
        return Done(xnn_define_softmax(graph_, Id(n.input_id()), Id(n.output_id()), n.flags()));
      }
      case U::XNNCopy: {
        const auto& n = As<xn::XNNNode1x1>();
        return Done(xnn_define_copy(graph_, Id(n.input_id()), Id(n.output_id()), n.flags()));
      }
      case U::XNNAvgPooling2d:
      case U::XNNMaxPooling2d: return Pool(kind, As<xn::XNNPooling2D>());
      case U::XNNGlobalAvgPooling2d: {
        const auto& n = As<xn::XNNNode1x1>();
        if (Rank(n.input_id()) < 3) return Corrupt("has an input of less than 3 dims");
        // ExecuTorch's format has a node of its own, XNNPACK one for all reductions.
        const size_t axes[] = {Rank(n.input_id()) - 3, Rank(n.input_id()) - 2};
        if (min_ != -INFINITY || max_ != INFINITY) return Unsupported("has an output range");
        return Done(xnn_define_static_reduce(graph_, xnn_reduce_mean, 2, axes, Id(n.input_id()), Id(n.output_id()), n.flags()));
      }
      case U::XNNArgMaxPooling2d: {
        const auto& n = As<xn::XNNArgMaxPooling2d>();
        if (Rank(n.input_id()) != 4) return Corrupt("has an input that has not 4 dims");
        return Done(xnn_define_argmax_pooling_2d(graph_, n.padding_top(), n.padding_right(), n.padding_bottom(), n.padding_left(),
                                                 n.pooling_height(), n.pooling_width(), Id(n.input_id()), Id(n.output_value_id()),
                                                 Id(n.output_index_id()), n.flags()));
      }
      case U::XNNStaticTranspose: {
        const auto& n = As<xn::XNNStaticTranspose>();
        return Done(
            xnn_define_static_transpose(graph_, n.num_dims(), Dims(n.perm()).data(), Id(n.input_id()), Id(n.output_id()), n.flags()));
      }
      case U::XNNStaticReshape: {
        const auto& n = As<xn::XNNStaticReshape>();
        return Done(
            xnn_define_static_reshape(graph_, n.num_dims(), Dims(n.new_shape()).data(), Id(n.input_id()), Id(n.output_id()), n.flags()));
      }
      case U::XNNStaticSlice: {
        const auto& n = As<xn::XNNStaticSlice>();
        return Done(xnn_define_static_slice(graph_, n.num_dims(), Dims(n.offsets()).data(), Dims(n.sizes()).data(), Id(n.input_id()),
                                            Id(n.output_id()), n.flags()));
      }
      case U::XNNStaticConstantPad: {
        const auto& n = As<xn::XNNStaticConstantPad>();
        return Done(xnn_define_static_constant_pad(graph_, Dims(n.pre_paddings()).data(), Dims(n.post_paddings()).data(), n.padding_value(),
                                                   Id(n.input_id()), Id(n.output_id()), n.flags()));
      }
      case U::XNNStaticResizeBilinear2D: {
        const auto& n = As<xn::XNNStaticResizeBilinear2D>();
        if (Rank(n.input_id()) != 4) return Corrupt("has an input that has not 4 dims");
        return Done(
            xnn_define_static_resize_bilinear_2d(graph_, n.new_height(), n.new_width(), Id(n.input_id()), Id(n.output_id()), n.flags()));
      }
      case U::XNNConcatenate2:
      case U::XNNConcatenate3:
      case U::XNNConcatenate4:
      case U::XNNConcatenate5: return Concatenate(kind, As<xn::XNNCat>());
      case U::XNNScaledDotProductAttention: {
        const auto& n = As<xn::XNNScaledDotProductAttention>();
        return Done(xnn_define_scaled_dot_product_attention(graph_, xnn_attention_logits_cap_type_none, nullptr, Id(n.query_id()),
                                                            Id(n.key_id()), Id(n.value_id()), Id(n.scale_id()), Id(n.mask_id()),
                                                            Id(n.output_id()), n.flags()));
      }
      default: return Unsupported("is of a kind this version does not know");
    }
  }

 private:
  template <class T>
  const T& As() const {
    return *static_cast<const T*>(node_.xnode_union());
  }
  uint32_t Id(uint32_t id) const { return id == kXnnInvalidId ? XNN_INVALID_VALUE_ID : values_.at(id).id; }
  uint32_t Rank(uint32_t id) const { return values_.at(id).tensor->num_dims(); }
  size_t Dim(uint32_t id, uint32_t i) const { return values_.at(id).tensor->dims()->Get(i); }
  static Status Done(xnn_status status) {
    return status == xnn_status_success ? OkStatus() : Unsupported("XNNPACK refused it: ", XnnStatusText(status));
  }

  Status Unary(xnn_unary_operator op) {
    xnn_unary_params params{};
    uint32_t input, output, flags;
    if (const auto* n = node_.xnode_union_as_XNNLeakyReLU()) {
      params.leaky_relu.negative_slope = n->negative_slope();
      input = n->input_id(), output = n->output_id(), flags = n->flags();
    } else if (const auto* n = node_.xnode_union_as_XNNELU()) {
      params.elu.alpha = n->alpha();
      input = n->input_id(), output = n->output_id(), flags = n->flags();
    } else {
      const auto& u = As<xn::XNNNode1x1>();
      params.clamp.min = min_;
      params.clamp.max = max_;
      input = u.input_id(), output = u.output_id(), flags = u.flags();
    }
    return Done(xnn_define_unary(graph_, op, &params, Id(input), Id(output), flags));
  }

  // A constant bias is read for every output channel.
  Status CheckBias(uint32_t bias, uint64_t channels) const {
    if (bias == kXnnInvalidId) return OkStatus();
    if (Rank(bias) != 1 || Dim(bias, 0) != channels) return Corrupt("has a bias that is not of ", channels, " elements");
    return OkStatus();
  }

  Status FullyConnected(const xn::XNNFullyConnected& n) {
    if (Rank(n.filter_id()) != 2 || Rank(n.input1_id()) < 1) return Corrupt("has a filter that has not 2 dims, or an input of none");
    const bool transposed = n.flags() & XNN_FLAG_TRANSPOSE_WEIGHTS;
    if (Dim(n.input1_id(), Rank(n.input1_id()) - 1) != Dim(n.filter_id(), transposed ? 0 : 1))
      return Corrupt("has an input of another width than its filter");
    DT_RETURN_IF_ERROR(CheckBias(n.bias_id(), Dim(n.filter_id(), transposed ? 1 : 0)));
    return Done(xnn_define_fully_connected(graph_, min_, max_, Id(n.input1_id()), Id(n.filter_id()), Id(n.bias_id()), Id(n.output_id()),
                                           n.flags()));
  }

  Status Conv(U kind, const xn::XNNNodeConv& n) {
    if (Rank(n.input1_id()) != 4 || Rank(n.filter_id()) != 4) return Corrupt("has an input or filter that has not 4 dims");
    const uint64_t groups = n.groups(), in = n.group_input_channels(), out = n.group_output_channels();
    const bool depthwise = kind == U::XNNDepthwiseConv2d;
    const uint64_t want[] = {depthwise ? 1 : groups * out, n.kernel_height(), n.kernel_width(), depthwise ? groups * out : in};
    for (uint32_t i = 0; i < 4; ++i)
      if (Dim(n.filter_id(), i) != want[i]) return Corrupt("has a filter whose dim ", i, " is ", Dim(n.filter_id(), i), ", not ", want[i]);
    if (Dim(n.input1_id(), 3) != groups * in) return Corrupt("has an input of ", Dim(n.input1_id(), 3), " channels, not ", groups * in);
    DT_RETURN_IF_ERROR(CheckBias(n.bias_id(), groups * out));
    const xn::XNNDatatype type = values_.at(n.filter_id()).tensor->datatype();
    if (!depthwise && (type == xn::XNNDatatype::xnn_datatype_qcint8 || type == xn::XNNDatatype::xnn_datatype_qint8))
      DT_RETURN_IF_ERROR(CheckConvolutions());
    const uint32_t input = Id(n.input1_id()), filter = Id(n.filter_id()), bias = Id(n.bias_id()), output = Id(n.output_id());
    if (depthwise) {
      return Done(xnn_define_depthwise_convolution_2d(graph_, n.padding_top(), n.padding_right(), n.padding_bottom(), n.padding_left(),
                                                      n.kernel_height(), n.kernel_width(), n.subsampling_height(), n.subsampling_width(),
                                                      n.dilation_height(), n.dilation_width(), n.group_output_channels(), groups, min_,
                                                      max_, input, filter, bias, output, n.flags()));
    }
    if (kind == U::XNNConvTranspose2d) {
      return Done(xnn_define_deconvolution_2d(graph_, n.padding_top(), n.padding_right(), n.padding_bottom(), n.padding_left(),
                                              n.adjustment_height(), n.adjustment_width(), n.kernel_height(), n.kernel_width(),
                                              n.subsampling_height(), n.subsampling_width(), n.dilation_height(), n.dilation_width(),
                                              n.groups(), in, out, min_, max_, input, filter, bias, output, n.flags()));
    }
    return Done(xnn_define_convolution_2d(graph_, n.padding_top(), n.padding_right(), n.padding_bottom(), n.padding_left(),
                                          n.kernel_height(), n.kernel_width(), n.subsampling_height(), n.subsampling_width(),
                                          n.dilation_height(), n.dilation_width(), n.groups(), in, out, min_, max_, input, filter, bias,
                                          output, n.flags()));
  }

  Status Pool(U kind, const xn::XNNPooling2D& n) {
    if (Rank(n.input_id()) != 4) return Corrupt("has an input that has not 4 dims");
    // Newer writers set XNN_FLAG_KEEP_DIMS here, which means nothing to pooling.
    const uint32_t flags = n.flags() & ~static_cast<uint32_t>(XNN_FLAG_KEEP_DIMS);
    if (kind == U::XNNMaxPooling2d) {
      return Done(xnn_define_max_pooling_2d(graph_, n.padding_top(), n.padding_right(), n.padding_bottom(), n.padding_left(),
                                            n.pooling_height(), n.pooling_width(), n.stride_height(), n.stride_width(), n.dilation_height(),
                                            n.dilation_width(), min_, max_, Id(n.input_id()), Id(n.output_id()), flags));
    }
    return Done(xnn_define_average_pooling_2d(graph_, n.padding_top(), n.padding_right(), n.padding_bottom(), n.padding_left(),
                                              n.pooling_height(), n.pooling_width(), n.stride_height(), n.stride_width(), min_, max_,
                                              Id(n.input_id()), Id(n.output_id()), flags));
  }

  Status Concatenate(U kind, const xn::XNNCat& n) {
    const uint32_t a = Id(n.input1_id()), b = Id(n.input2_id()), out = Id(n.output_id());
    const int32_t axis = static_cast<int32_t>(n.axis());
    if (kind == U::XNNConcatenate2) return Done(xnn_define_concatenate2(graph_, axis, a, b, out, n.flags()));
    const uint32_t c = Id(n.input3_id());
    if (kind == U::XNNConcatenate3) return Done(xnn_define_concatenate3(graph_, axis, a, b, c, out, n.flags()));
    const uint32_t d = Id(n.input4_id());
    if (kind == U::XNNConcatenate4) return Done(xnn_define_concatenate4(graph_, axis, a, b, c, d, out, n.flags()));
    return Done(xnn_define_concatenate5(graph_, axis, a, b, c, d, Id(n.input5_id()), out, n.flags()));
  }

  const xnn_subgraph_t graph_;
  const xn::XNode& node_;
  const XnnValues& values_;
  float min_ = -INFINITY, max_ = INFINITY;
};

}  // namespace

bool IsBinary(U kind) { return BinaryOf(kind) != xnn_binary_invalid; }

PackedOperands PackedOperandsOf(const xn::XNode& node) {
  switch (node.xnode_union_type()) {
    case U::XNNFullyConnected: {
      const auto* n = node.xnode_union_as_XNNFullyConnected();
      return {n->input1_id(), n->filter_id(), n->bias_id(), n->output_id(), n->flags()};
    }
    case U::XNNConv2d:
    case U::XNNDepthwiseConv2d:
    case U::XNNConvTranspose2d: {
      const auto* n = static_cast<const xn::XNNNodeConv*>(node.xnode_union());
      return {n->input1_id(), n->filter_id(), n->bias_id(), n->output_id(), n->flags(), n->groups()};
    }
    case U::XNNBatchMatrixMultiply: {
      const auto* n = static_cast<const xn::XNNNode2x1*>(node.xnode_union());
      return {n->input1_id(), n->input2_id(), kXnnInvalidId, n->output_id(), n->flags()};
    }
    default: return {};
  }
}

void ForEachReadInput(const xn::XNode& node, const std::function<void(uint32_t)>& f) {
  if (const PackedOperands p = PackedOperandsOf(node); p.filter != kXnnInvalidId) return f(p.input);
  if (IsBinary(node.xnode_union_type())) {
    const auto* n = static_cast<const xn::XNNNode2x1*>(node.xnode_union());
    f(n->input1_id());
    return f(n->input2_id());
  }
  switch (node.xnode_union_type()) {
    case U::XNNConcatenate2:
    case U::XNNConcatenate3:
    case U::XNNConcatenate4:
    case U::XNNConcatenate5: {
      const auto* n = static_cast<const xn::XNNCat*>(node.xnode_union());
      for (uint32_t id : {n->input1_id(), n->input2_id(), n->input3_id(), n->input4_id(), n->input5_id()}) f(id);
      return;
    }
    case U::XNNScaledDotProductAttention: {
      const auto* n = node.xnode_union_as_XNNScaledDotProductAttention();
      for (uint32_t id : {n->query_id(), n->key_id(), n->value_id(), n->scale_id(), n->mask_id()}) f(id);
      return;
    }
    case U::XNNStaticTranspose: return f(node.xnode_union_as_XNNStaticTranspose()->input_id());
    case U::XNNStaticReshape: return f(node.xnode_union_as_XNNStaticReshape()->input_id());
    case U::XNNStaticSlice: return f(node.xnode_union_as_XNNStaticSlice()->input_id());
    case U::XNNStaticConstantPad: return f(node.xnode_union_as_XNNStaticConstantPad()->input_id());
    case U::XNNStaticResizeBilinear2D: return f(node.xnode_union_as_XNNStaticResizeBilinear2D()->input_id());
    case U::XNNLeakyReLU: return f(node.xnode_union_as_XNNLeakyReLU()->input_id());
    case U::XNNELU: return f(node.xnode_union_as_XNNELU()->input_id());
    case U::XNNAvgPooling2d:
    case U::XNNMaxPooling2d: return f(static_cast<const xn::XNNPooling2D*>(node.xnode_union())->input_id());
    case U::XNNArgMaxPooling2d: return f(node.xnode_union_as_XNNArgMaxPooling2d()->input_id());
    default: return f(static_cast<const xn::XNNNode1x1*>(node.xnode_union())->input_id());
  }
}

Status DefineNode(xnn_subgraph_t subgraph, const xn::XNode& node, const XnnValues& values) { return Definer(subgraph, node, values).Run(); }

}  // namespace dovetail
