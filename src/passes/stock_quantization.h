// Quantized operators spelled out in arithmetic of the stock ExecuTorch runtime. For decompose_for_stock.
#pragma once

#include "ir/rewrite.h"

namespace dovetail {

// What stands for node `id` when it is quantize, dequantize, quantize_dynamic, quantized_linear, quantized_convolution or quantized_embedding;
// nullopt for others. Integers are the reference's own; products are of floats, with weights made floats anew in each call.
Result<Replacement> DecomposeQuantized(RewriteContext& c, NodeId id);

}  // namespace dovetail
