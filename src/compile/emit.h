// From the planned form to a .pte.
#pragma once

#include <span>
#include <string>

#include "backends/backend.h"
#include "format/meta.h"
#include "format/pte_writer.h"
#include "ir/graph.h"

namespace dovetail {

struct EmitOptions {
  std::span<const Backend* const> backends;
  bool stock = false;  // only operators of the stock ExecuTorch runtime; initial values of all states are written out
  QuantizationInfo quantization = {};
};

struct EmitStats {
  uint64_t planned_bytes = 0, planned_lower_bound = 0, state_bytes = 0;
};

// Borrows the module's constants: write the description before the module goes. Lists every operator that the runtime asked for lacks.
Result<pte::ProgramDesc> Emit(const Module& module, const EmitOptions& options, EmitStats& stats);

// Whether the stock ExecuTorch 1.5.1 runtime registers this operator ("aten::add.out").
bool IsStockOperator(std::string_view name);

}  // namespace dovetail
