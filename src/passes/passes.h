// The passes: free functions over a Module, in the order of the table in passes.cc. Each is a file x.cc with its golden cases tests/passes/x.ir.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "ir/graph.h"

namespace dovetail {

struct Pass {
  std::string_view name;
  Status (*run)(Module&);
  std::string_view why;  // why it stands where it stands
};

// From the imported form to the one that is partitioned.
std::span<const Pass> CorePasses();
// Any pass by name, or null.
const Pass* FindPass(std::string_view name);
// Runs a pass and verifies its result: the module's form and its states. Called after each pass with the pass's name.
Status RunPass(const Pass& pass, Module& module);

Status Canonicalize(Module& module);
Status RecoverQuantized(Module& module);
Status FoldConstants(Module& module);
Status FuseLinear(Module& module);
Status FoldBatchNorm(Module& module);
Status FuseRmsNorm(Module& module);
Status FuseRope(Module& module);
Status FuseSilu(Module& module);
Status FuseAttention(Module& module);
Status CausalPositions(Module& module);
Status RemoveCommonNodes(Module& module);
// After quantization, for our runtime alone.
Status FuseQuantizedAttention(Module& module);
// Only for --runtime executorch: makes the mask of an attention an additive float tensor, and spells out the operators that the stock
// runtime lacks (outside regions).
Status AdditiveMasks(Module& module);
Status UnrollRecurrent(Module& module);
Status DecomposeForStock(Module& module);
// One node for a layer norm: after quantization for our runtime, whose static plans are of the nodes that it is made of, and before that for fixed-point
// hardware.
Status FuseLayerNorm(Module& module);
// Only before the quantization for fixed-point hardware: layer norms as above, and plain operators for attention, rope and silu.
Status SpellOutFused(Module& module);
// After partitioning, for our runtime alone.
Status AttendByRow(Module& module);
// After partitioning: operators left to the cpu kernels compute on f32, between dequantize and quantize nodes.
Status ExpandQuantized(Module& module);

}  // namespace dovetail
