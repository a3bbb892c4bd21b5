// One node of an XN01 graph as XNNPACK's define call.
#pragma once

#include <xnnpack.h>

#include <functional>
#include <span>
#include <unordered_map>

#include "base/status.h"
#include "format/xnnpack_generated.h"

namespace dovetail {

// What is known of a value of the blob once it was defined.
struct XnnValue {
  uint32_t id = XNN_INVALID_VALUE_ID;
  const xn::XNNTensorValue* tensor = nullptr;
  const void* data = nullptr;  // of a constant
  const void* scales = nullptr;
  std::span<const std::byte> bytes, scale_bytes;  // of the program, of a constant
  float scale = 0;  // if quantized per tensor
  int32_t zero_point = 0;
};
using XnnValues = std::unordered_map<uint32_t, XnnValue>;  // by id_out

// The operands of a node that packs a filter while the runtime is created, by id_out; kXnnInvalidId where there is none.
struct PackedOperands {
  uint32_t input = UINT32_MAX, filter = UINT32_MAX, bias = UINT32_MAX, output = UINT32_MAX;
  uint32_t flags = 0, groups = 1;
};
PackedOperands PackedOperandsOf(const xn::XNode& node);

// Whether a node of that kind is an XNNNode2x1 that XNNPACK has one elementwise operator of two operands for.
bool IsBinary(xn::XNodeUnion kind);

// The ids of the other inputs: those read when the graph runs. Ids that a node of that kind leaves unused may be among them.
void ForEachReadInput(const xn::XNode& node, const std::function<void(uint32_t)>& f);

// Fails, with a message that begins in mid-sentence, on what XNNPACK refuses or would read out of bounds.
Status DefineNode(xnn_subgraph_t subgraph, const xn::XNode& node, const XnnValues& values);

}  // namespace dovetail
