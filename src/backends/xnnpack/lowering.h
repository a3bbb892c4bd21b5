// What a lowering function writes to: XNNPACK nodes and values, in one of two modes.
//
// Checking: nothing is kept, every value has its shape, and the first reason why XNNPACK cannot do it is remembered. Emitting: the
// same calls build the graph of a delegate blob. So one function per operator both says whether it is supported and lowers it.
//
// Errors stick: after Fail, calls still return ids of the right shapes and do nothing, so a lowering need not look in between.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "format/xnnpack_generated.h"
#include "ir/graph.h"

namespace dovetail::xnnpack {

using Id = uint32_t;
inline constexpr Id kNoId = UINT32_MAX;
using Kind = xn::XNodeUnion;

// The order of a value's dims in XNNPACK. Convolution and pooling want channels last; a value of rank 3 or 4 may exist in both
// orders, and chains of such operators stay in one.
enum class Order : uint8_t { kPlain, kChannelsLast };

// Of the wire format.
inline constexpr uint32_t kTransposeWeights = 0x1, kKeepDims = 0x40;
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What the elements of a value are. Which fields count follows from `params`.
struct XnnType {
  xn::XNNDatatype datatype = xn::XNNDatatype::xnn_datatype_fp32;
  xn::XNNQuantParams params = xn::XNNQuantParams::NONE;
  float scale = 0;                          // per tensor
  int32_t zero_point = 0;
  int32_t row_dims = 1;                     // per row, at run time
  int32_t channel_dim = 0, block = 0;       // per channel and per block
  uint32_t scales = 0, num_scales = 0;      // index among the constants

  static XnnType PerTensor(float scale, int32_t zero_point) {
    XnnType t;
    t.datatype = xn::XNNDatatype::xnn_datatype_qint8;
    t.params = xn::XNNQuantParams::PerTensorQuant;
    t.scale = scale;
    t.zero_point = zero_point;
    return t;
  }
  static XnnType PerRow(int32_t row_dims) {
    XnnType t;
    t.datatype = xn::XNNDatatype::xnn_datatype_qdint8;
    t.params = xn::XNNQuantParams::PerTokenDynamicQuant;
    t.row_dims = row_dims;
    return t;
  }
  friend bool operator==(const XnnType&, const XnnType&) = default;
};

// One node; which fields count follows from its kind.
struct XnnNode {
  XnnNode(Kind k, std::initializer_list<Id> inputs) : kind(k) {
    in.fill(kNoId);
    std::copy(inputs.begin(), inputs.end(), in.begin());
  }

  Kind kind;
  std::array<Id, 5> in;
  Id out = kNoId;
  uint32_t flags = 0;
  std::vector<uint32_t> a, b;  // perm, new_shape, offsets and sizes, paddings, or the numbers of a convolution or pooling
  float number = 0;            // padding value
  int32_t axis = 0;
  bool ranged = false;
  float min = -kInfinity, max = kInfinity;  // if ranged
};

// XNNPACK has no tensor without dims.
inline Shape AtLeastOneDim(const Shape& s) { return s.empty() ? Shape{Dim(1)} : s; }
// Where each dim of a tensor with channels last stands in plain order.
std::vector<size_t> ChannelsLastOrder(size_t rank);

class Lowering {
 public:
  enum class Mode : uint8_t { kCheck, kEmit };
  // Module and graph outlive this.
  Lowering(const Module& module, const Graph& graph, Mode mode);

  const Module& module() const { return module_; }
  const Graph& graph() const { return graph_; }
  const TensorType& type(ValueId v) const { return graph_.type(v); }
  // `reason` completes "XNNPACK: "; the first one counts.
  void Fail(std::string reason);
  bool failed() const { return !reason_.empty(); }
  Status status() const { return failed() ? Unsupported("XNNPACK: ", reason_) : OkStatus(); }

  // What a per_tensor value is while a node is lowered. Off, its integers. On, the real numbers they stand for: operands are converted to
  // f32 (a value once, however many nodes read it so; a constant while compiling) and what is bound is rounded to the value's type.
  void set_in_f32(bool on) { in_f32_ = on; }
  bool in_f32() const { return in_f32_; }
  // Of a value, as its operand has it and as what is bound to it must be.
  XnnType TypeOf(ValueId v) { return in_f32_ && type(v).per_tensor() ? XnnType() : StoredType(v); }

  // Values. An operand is a tensor of the region or a constant, which becomes static data that is read when the graph runs.
  Id Operand(ValueId v, Order order = Order::kPlain);
  // Whether the value so far exists with channels last and not in plain order.
  bool OnlyChannelsLast(ValueId v) const;
  // `id` is the value of `v`.
  void Bind(ValueId v, Id id, Order order = Order::kPlain);
  const Shape& shape(Id id) const { return values_[id].shape; }
  int64_t UpperBound(Dim d);  // fails on a dim without one

  // Static data read when the graph runs. It is stored in the blob: a named one may be gone by then in other runtimes.
  Id Number(double v);  // [1]
  Id Data(Shape shape, std::vector<float> data);
  // A filter or bias, which XNNPACK packs while loading. Large ones are the program's shared data under `key`; the same key always
  // has the same contents. The first form takes the constant as it is.
  Id Weight(const Constant& constant);
  Id Weight(std::string key, Shape shape, const std::function<std::vector<float>()>& make);
  // A filter of integers with a scale per channel or per block, which XNNPACK packs too. `shape` is the filter's in XNNPACK; `make`, if
  // given, writes the integers in the order of that shape (stored under key + suffix), else they are the constant's as they are.
  Id QuantizedWeight(const Constant& weight, const Constant& scale, Shape shape, int channel_dim, std::string_view suffix = {},
                     const std::function<std::vector<std::byte>()>& make = nullptr);
  // The bias of a filter with `scale` for an input of i8 per_tensor: i32 in units of input_scale * scale. kNoId without a bias.
  Id QuantizedBias(const Constant* bias, const Constant& scale, float input_scale);
  // A constant's elements in row-major order, and the same of type f32. Without data it fails.
  std::vector<std::byte> DataOf(const Constant& c);
  std::vector<float> FloatsOf(const Constant& c);
  // The constant that `v` is, if it is of type f32; else null.
  const Constant* F32Constant(ValueId v) const;

  // Nodes. Where no type is given the result is f32; clamps and whatever only moves elements give the type they take.
  Id Unary(Kind kind, Id x, XnnType type = {});
  Id Clamp(Id x, double min, double max);
  Id Binary(Kind kind, Id a, Id b, XnnType type = {});
  Id Add(Id a, Id b) { return Binary(Kind::XNNAdd, a, b); }
  Id Mul(Id a, Id b) { return Binary(Kind::XNNMultiply, a, b); }
  Id Softmax(Id x);                   // over the last dim
  Id Reshape(Id x, const Shape& to);  // the same elements; at most one dim of `to` is symbolic
  Id Transpose(Id x, const std::vector<size_t>& perm);
  Id Slice(Id x, size_t axis, int64_t start, int64_t length);
  Id Concat(std::vector<Id> parts, size_t axis);
  Id Pad(Id x, const std::vector<uint32_t>& before, const std::vector<uint32_t>& after, double value);
  Id FullyConnected(Id x, Id filter, Id bias, uint32_t flags = 0, XnnType type = {});
  Id MatMul(Id a, Id b, bool transpose_b);  // batch dims of 1 broadcast
  // `shape` is the result's. For the kinds without a function above.
  Id Emit(XnnNode node, Shape shape, XnnType type = {});
  const XnnType& xnn_type(Id id) const { return values_[id].type; }
  // f32 to integers and back.
  Id Convert(Id x, XnnType to);

  // Order changes of rank 3 and 4.
  Id ToChannelsLast(Id x);
  Id ToPlain(Id x);

  // The blob's graph and data without nodes whose results nothing uses; the region's inputs and outputs become external. Only when emitting.
  Result<LoweredRegion> Finish();
  // Makes the region's inputs known. Only when emitting.
  void BindInputs();

 private:
  struct XnnValue {
    Shape shape;
    uint32_t constant = 0;      // index into constants_, 0: none
    uint32_t external = kNoId;  // position among the arguments
    uint32_t node = kNoId;      // index into nodes_ of what makes it
    bool output = false;
    XnnType type = {};
  };
  struct XnnConstant {
    std::string key;  // empty: inline
    std::vector<std::byte> bytes;
    size_t size = 0;
  };

  Id NewValue(Shape shape, XnnType type = {});
  // The emitted node of that kind that made `id`, or null.
  const XnnNode* MadeBy(Id id, Kind kind) const;
  void RemoveDeadNodes();
  Id NewConstant(Shape shape, XnnConstant c, XnnType type = {});
  // A constant's bytes, inline when small, else the program's shared data under `key`.
  XnnConstant Stored(const std::string& key, const Constant& c);
  XnnConstant Stored(const std::string& key, std::vector<std::byte> bytes);
  XnnType StoredType(ValueId v);
  Id ConstantOperand(ValueId v, const Constant& c, Order order);
  std::vector<uint32_t> Sizes(const Shape& shape);
  Result<std::vector<std::byte>> Serialize(uint32_t num_inputs, uint32_t num_outputs);

  const Module& module_;
  const Graph& graph_;
  const Mode mode_;
  std::string reason_;
  std::vector<XnnValue> values_;
  std::vector<XnnNode> nodes_;
  std::vector<XnnConstant> constants_{1};  // entry 0 is reserved
  std::map<std::pair<ValueId, Order>, Id> bound_;
  bool in_f32_ = false;
  std::map<std::pair<ValueId, Order>, Id> real_;  // of per_tensor values, in f32
  std::map<uint64_t, Id> numbers_;
  std::map<Id, std::pair<double, double>> ranges_;  // of what a chain of clamps gives, as XNNPACK fuses it
  std::map<std::string, Id, std::less<>> weights_;
  std::vector<SharedData> shared_;
};

// One function per operator; the table is in backend.cc.
using LowerFn = void (*)(Lowering&, const Node&);
LowerFn FindLowering(OpId op);

// Lowers a node for which there is a function: on integers where its types are per_tensor and XNNPACK has that (static_form.cc), else in f32.
void LowerNode(Lowering& l, const Node& n);
// Whether XNNPACK computes the node on integers with a scale for the whole tensor.
bool HasStaticForm(Lowering& l, const Node& n);

// By file.
LowerFn FindElementwise(OpId op);  // lower_elementwise.cc
LowerFn FindMovement(OpId op);     // lower_movement.cc
LowerFn FindAlgebra(OpId op);      // lower_algebra.cc: linear, matmul, reductions, rms_norm, softmax
LowerFn FindAttention(OpId op);    // lower_attention.cc: attention, rope
LowerFn FindSpatial(OpId op);      // lower_spatial.cc: convolution, quantized_convolution, pooling
LowerFn FindQuantized(OpId op);    // lower_quantized.cc: quantized_linear, quantize, dequantize, quantize_dynamic

}  // namespace dovetail::xnnpack
