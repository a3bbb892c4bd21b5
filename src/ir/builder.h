// Appends nodes to a graph with inferred types.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace dovetail {

// Named attributes; those not given take the schema's default.
using NamedAttrs = std::initializer_list<std::pair<std::string_view, Attr>>;

// Nodes go to the end of `order` (graph.order unless another vector is given). `location` is given to every node made.
class Builder {
 public:
  Builder(Module& module, Graph& graph, std::vector<NodeId>* order = nullptr)
      : module_(module), graph_(graph), order_(order ? order : &graph.order) {}

  uint32_t location = kNone;

  Module& module() { return module_; }
  Graph& graph() { return graph_; }
  const TensorType& type(ValueId v) const { return graph_.type(v); }

  // One node; its results. Fails when inference refuses the operand types.
  Result<std::vector<ValueId>> EmitAll(OpId op, std::vector<ValueId> operands, NamedAttrs attrs = {});
  // The first result.
  Result<ValueId> Emit(OpId op, std::vector<ValueId> operands, NamedAttrs attrs = {});
  // With attributes in schema order, all given.
  Result<std::vector<ValueId>> EmitWith(OpId op, std::vector<ValueId> operands, std::vector<Attr> attrs, size_t num_results = 1);

  ValueId Const(uint32_t constant);
  // A new owned constant; `name` is made unique.
  ValueId AddConst(std::string name, TensorType type, std::vector<std::byte> data);
  // Rank 0 (or the given shape, all elements alike), converted to `dtype`.
  ValueId Splat(double value, DType dtype, Shape shape = {});
  ValueId Ints(std::span<const int64_t> values);  // i64[n]
  ValueId ReadState(uint32_t state);
  void WriteState(uint32_t state, ValueId value);

 private:
  NodeId Append(OpId op);
  Module& module_;
  Graph& graph_;
  std::vector<NodeId>* order_;
};

// `base`, with a number behind it if a constant has that name.
std::string UniqueConstantName(const Module& module, const std::string& base);

// Runs the operator's inference for operands of `graph`; `num_results` types. Where the operator does not compute on integers, per_tensor
// quantized operands count as f32, and so are the results.
Result<std::vector<TensorType>> InferTypes(const Module& module, const Graph& graph, OpId op, std::span<const ValueId> operands,
                                           std::span<const Attr> attrs, size_t num_results);
// Attributes in schema order from named ones and defaults.
Result<std::vector<Attr>> FillAttrs(OpId op, NamedAttrs attrs);

}  // namespace dovetail
