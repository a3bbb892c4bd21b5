#include "quant/quantize.h"

#include "ir/verifier.h"
#include "quant/layers.h"
#include "quant/static_int8.h"
#include "quant/weights.h"

namespace dovetail {

Status Quantize(Module& module, const QuantizeOptions& options, QuantizeReport& report) {
  const StateSets before = CollectStates(module);
  module.form = Form::kQuantized;
  if (options.scheme) {
    WeightQuantizer weights(module);
    const bool is_static = options.scheme->activations == Activations::kStatic;
    DT_RETURN_IF_ERROR((is_static ? QuantizeStatic : QuantizeLayers)(module, options, weights, report));
  }
  if (options.int8_states) return Unsupported("--state int8 is not in this version");
  DT_RETURN_IF_ERROR(Verify(module));
  return CheckStates(before, CollectStates(module));
}

}  // namespace dovetail
