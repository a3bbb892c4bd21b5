// What a lowering function writes to: tensors and operators of QNN, in one of two modes.
//
// Checking: every operator is shown to the library's own validation, nothing is kept, and the first refusal is remembered. Emitting: the same calls build
// a graph in a context. So one function per operator both says whether it is supported and lowers it.
//
// Errors stick: after Fail, calls still return ids of the right shapes and do nothing, so a lowering need not look in between.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backends/qnn/api/library.h"
#include "backends/qnn/api/tensor.h"
#include "ir/graph.h"

namespace dovetail::qnn {

using Id = uint32_t;
inline constexpr Id kNoId = UINT32_MAX;
using Dims = std::vector<uint32_t>;

// The order of a value's dims. Convolution, pooling and resizing want channels last; a value of rank 4 may exist in both orders, and chains of such
// operators stay in one.
enum class Order : uint8_t { kPlain, kChannelsLast };

// Type and, of fixed-point numbers with one scale for the tensor, what they stand for: real = scale * (stored - zero_point).
struct QnnType {
  abi::DataType data_type = abi::DataType::kFloat32;
  bool quantized = false;
  float scale = 0;
  int32_t zero_point = 0;
  friend bool operator==(const QnnType&, const QnnType&) = default;
};
inline constexpr QnnType kInt32{abi::DataType::kInt32};

template <class T>
std::vector<std::byte> Bytes(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}
size_t Width(abi::DataType t);  // of an element in bytes
// What a fixed-point type can store.
struct StoredRange {
  int32_t least, most;
};
StoredRange RangeOf(abi::DataType t);

// A parameter of an operator.
struct QnnParam {
  enum class Kind : uint8_t { kUint32, kInt32, kBool, kFloat, kUints, kInts };
  std::string name;
  Kind kind;
  double number = 0;
  Dims dims = {};
  std::vector<int64_t> numbers = {};
};
QnnParam Uint(std::string name, uint64_t v);
QnnParam Int(std::string name, int64_t v);
QnnParam Bool(std::string name, bool v);
QnnParam Float(std::string name, double v);
QnnParam Uints(std::string name, Dims dims, std::vector<int64_t> v);
QnnParam Ints(std::string name, Dims dims, std::vector<int64_t> v);

// The integers of a weight, with a scale for each index of an axis, and perhaps a factor for each block of elements along the other one.
struct QnnWeight {
  Dims dims;
  int32_t axis = 0;
  int bits = 8;                       // 4: one value to a byte all the same
  std::vector<float> scales;          // by index of the axis
  std::vector<uint8_t> block_factors; // by index of the axis, then by block; empty: none
  std::function<std::vector<std::byte>()> make;
};

class Lowering {
 public:
  // Module, graph and device outlive this. `handle`: the QNN graph that is made; null: only checks.
  Lowering(const Module& module, const Graph& graph, const Device& device, abi::Handle handle);

  const Module& module() const { return module_; }
  const Graph& graph() const { return graph_; }
  const TensorType& type(ValueId v) const { return graph_.type(v); }
  bool checking() const { return !handle_; }
  // `reason` completes "QNN: "; the first one counts.
  void Fail(std::string reason);
  bool failed() const { return !reason_.empty(); }
  Status status() const { return failed() ? Unsupported("QNN: ", reason_) : OkStatus(); }

  // Values. Integers of 64 bits are computed in 32.
  Id In(ValueId v, Order order = Order::kPlain);
  // The tensor that one following Op makes the value in.
  Id Out(ValueId v, Order order = Order::kPlain);
  // The value is what `id` already is.
  void Bind(ValueId v, Id id, Order order = Order::kPlain);
  // Whether the value so far exists with channels last and not in plain order.
  bool OnlyChannelsLast(ValueId v) const;
  // The constant that `v` is, or null.
  const Constant* ConstantOf(ValueId v) const { return GetConstant(module_, graph_, v); }
  QnnType TypeOf(ValueId v);  // as it is computed
  Dims DimsOf(ValueId v);     // at least one; fails on symbolic ones

  Id Temp(Dims dims, QnnType type);
  // `make` gives the elements. Where only types are checked, large ones are not made.
  Id Static(Dims dims, QnnType type, const std::function<std::vector<std::byte>()>& make);
  Id StaticInts(Dims dims, const std::vector<int32_t>& values);
  Id Weight(const QnnWeight& weight, std::string_view name);
  // What `make` makes, which is done at the first call with this key.
  Id Once(const std::string& key, const std::function<Id()>& make);
  // In units of input scale times weight scale, i32.
  Id Bias(const Constant& bias, float input_scale, const std::vector<float>& scales);
  std::vector<std::byte> DataOf(const Constant& c);  // row-major; without data it fails
  std::vector<float> FloatsOf(const Constant& c);

  const Dims& dims(Id id) const { return tensors_[id].dims; }
  const QnnType& qnn_type(Id id) const { return tensors_[id].type; }
  void Op(std::string_view op, const std::vector<Id>& inputs, const std::vector<Id>& outputs, const std::vector<QnnParam>& params = {});
  // The same elements. Gives `x` itself if the dims are the same.
  Id Reshape(Id x, const Dims& to);
  void ReshapeInto(Id x, Id to) { Op("Reshape", {x}, {to}); }
  Id Transpose(Id x, const std::vector<uint32_t>& perm);
  void TransposeInto(Id x, const std::vector<uint32_t>& perm, Id to);

  // The region's inputs and outputs, in order. Only when emitting.
  void BindArguments();
  // What is bound with channels last alone, or is another value, is copied to its output. Only when emitting.
  void Finish();

 private:
  struct TensorData {
    std::string name;
    Dims dims;
    QnnType type;
    std::vector<std::byte> data;
    std::unique_ptr<void, void (*)(void*)> zeros{nullptr, nullptr};  // in place of data when checking
    std::vector<abi::ScaleOffset> scales;
    std::vector<float> bw_scales;
    std::vector<uint8_t> factors;
    abi::BlockwiseExpansion blocks{};
    abi::Tensor abi{};
    bool created = false;
  };

  Id NewTensor(std::string name, Dims dims, QnnType type, abi::TensorKind kind);
  void SetData(TensorData& t, const std::function<std::vector<std::byte>()>& make);
  void Create(Id id);
  std::vector<std::byte> Narrowed(const Constant& c);  // of i64, to 32 bits
  Id ConstantIn(ValueId v, const Constant& c, Order order);
  std::string Unique(std::string name);
  std::string ArgumentName(std::string_view side, size_t index, ValueId v);

  const Module& module_;
  const Graph& graph_;
  const Device& device_;
  const abi::Handle handle_;
  std::string reason_;
  std::deque<TensorData> tensors_;
  std::map<std::pair<ValueId, Order>, Id> bound_;
  std::map<ValueId, Id> outputs_;  // not yet made
  std::map<std::string, int> names_;  // how often each was asked for
  std::map<std::string, Id> once_;
};

// Of Once: the weight with these scales in one arrangement of its elements.
std::string KeyOf(const Lowering& l, const Constant& weight, const Constant& scale, std::string_view layout);

// One function per operator.
using LowerFn = void (*)(Lowering&, const Node&);
LowerFn FindLowering(OpId op);

// By file.
LowerFn FindElementwise(OpId op);  // lower_elementwise.cc
LowerFn FindMovement(OpId op);     // lower_movement.cc: view, permute, slice, cat, expand, pad
LowerFn FindIndexing(OpId op);     // lower_indexing.cc: gather, scatter
LowerFn FindAlgebra(OpId op);      // lower_algebra.cc: linear, matmul, softmax, norms, reductions
LowerFn FindSpatial(OpId op);      // lower_spatial.cc: convolution, pooling, resizing

std::vector<uint32_t> ToChannelsLast(size_t rank);
std::vector<uint32_t> ToPlain(size_t rank);

}  // namespace dovetail::qnn
