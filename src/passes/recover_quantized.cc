// Models that were quantized before the export (PT2E, torchao) get the types and operators of this project's own quantization. Each operator of the
// export keeps its exact meaning (ops/affine.h) until it is a part of a pattern here; what no pattern takes stays as it is and runs as it is. What the
// patterns change in numbers:
//  - ranges that are found at run time for a whole tensor, and symmetric ones of rows, become quantize_dynamic's asymmetric ranges of rows, which
//    is what XNNPACK computes (ExecuTorch's backend does the same with the former);
//  - scales of 4-bit weights are rounded to bf16, the biases of static layers to multiples of the scale of their sums of products;
//  - quantize divides by the scale where PyTorch multiplies by its reciprocal: of numbers half way between two integers, some fall to the other side.
#include "passes/passes.h"
#include "passes/recover_quantized.h"

namespace dovetail {

Status RecoverQuantized(Module& module) {
  DT_RETURN_IF_ERROR(RecoverStaticParameters(module));
  DT_RETURN_IF_ERROR(RecoverStaticValues(module));  // dequantize comes down to the layers
  DT_RETURN_IF_ERROR(RecoverLayers(module));
  return RecoverStaticValues(module);
}

}  // namespace dovetail
