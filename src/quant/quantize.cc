#include "quant/quantize.h"

#include "ir/verifier.h"
#include "quant/layers.h"
#include "quant/state_storage.h"
#include "quant/weights.h"

namespace dovetail {

Status Quantize(Module& module, const QuantizeOptions& options, QuantizeReport& report) {
  StateSets before = CollectStates(module);
  module.form = Form::kQuantized;
  if (options.scheme) {
    if (options.scheme->activations == Activations::kStatic) return Unsupported("--quantize ", options.scheme->name, " is not in this version");
    WeightQuantizer weights(module);
    DT_RETURN_IF_ERROR(QuantizeLayers(module, options, weights, report));
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
