#include "quant/quantize.h"

#include "ir/verifier.h"
#include "quant/calibration.h"
#include "quant/compensate.h"
#include "quant/layers.h"
#include "quant/state_storage.h"
#include "quant/static_int8.h"
#include "quant/weights.h"

namespace dovetail {

Status Quantize(Module& module, const QuantizeOptions& options, QuantizeReport& report) {
  StateSets before = CollectStates(module);
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
    DT_RETURN_IF_ERROR(is_static ? QuantizeStatic(module, options, weights, report) : QuantizeLayers(module, options, weights, report));
  }
  if (options.int8_states) DT_RETURN_IF_ERROR(StoreStatesAsInt8(module, report));
  DT_RETURN_IF_ERROR(Verify(module));
  // The scales of a state are read and written where it is, and nowhere else.
  for (const auto& g : module.graphs)
    for (const std::string& name : report.int8_states)
      for (std::set<std::string>* set : {&before.read, &before.written})
        if (const std::string state = StrCat(g->name, ".", name); set->contains(state)) set->insert(ScalesOf(state));
  return CheckStates(before, CollectStates(module));
}

}  // namespace dovetail
