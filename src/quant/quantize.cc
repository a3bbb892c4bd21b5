#include "quant/quantize.h"

#include "ir/verifier.h"
#include "quant/calibration.h"
#include "quant/compensate.h"
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
    if (!is_static && !options.calibration.empty()) {
      if (options.scheme->weight_bits == 4) {
        DT_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListCalls(options.calibration));
        DT_RETURN_IF_ERROR(RoundWeightsOnCalls(module, options, files, weights, report));
      } else {
        report.warnings.push_back(StrCat("--quantize ", options.scheme->name, " needs no calibration; the files of --calibrate were not read"));
      }
    }
    DT_RETURN_IF_ERROR((is_static ? QuantizeStatic : QuantizeLayers)(module, options, weights, report));
  }
  if (options.int8_states) return Unsupported("--state int8 is not in this version");
  DT_RETURN_IF_ERROR(Verify(module));
  return CheckStates(before, CollectStates(module));
}

}  // namespace dovetail
