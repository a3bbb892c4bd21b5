// The shapes of a graph's values in one call: XNNPACK keeps those inside a graph to itself.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "format/xnnpack_blob.h"

namespace dovetail {

using XnnDims = std::vector<int64_t>;

struct XnnNodeIo {
  std::vector<uint32_t> inputs;  // id_out of values: activations first, then filter and bias
  uint32_t output = kXnnInvalidId;
  uint32_t flags = 0;
};
XnnNodeIo IoOf(const xn::XNode& node);

class NodeShapes {
 public:
  explicit NodeShapes(const xn::XNNGraph& graph);
  // Sizes of arguments by external id; those of all values follow from them. An argument that is not given keeps its upper bound.
  void Infer(const std::function<std::span<const size_t>(uint32_t external_id)>& sizes);
  // By id_out, which is a value of the graph.
  const XnnDims& dims(uint32_t id) const { return values_.at(id).dims; }
  const xn::XNNTensorValue& tensor(uint32_t id) const { return *values_.at(id).tensor; }
  // "qdint8[1,64]", "constant qcint8[64,64]"
  std::string Text(uint32_t id) const;
  // Of a constant with its scales.
  uint64_t Bytes(uint32_t id) const;
  bool IsConstant(uint32_t id) const { return tensor(id).constant_buffer_idx() != 0; }
  // Multiply-adds of matrix products, convolutions and attention; else 0.
  uint64_t Macs(const xn::XNode& node) const;

 private:
  struct Value {
    const xn::XNNTensorValue* tensor;
    const xn::XNNQuantizedTensorValue* quantized;  // or null
    XnnDims dims;
  };
  XnnDims OutputOf(const xn::XNode& node, const XnnNodeIo& io) const;

  const xn::XNNGraph& graph_;
  std::unordered_map<uint32_t, Value> values_;
};

}  // namespace dovetail
