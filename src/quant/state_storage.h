// States stored as int8: NAME of f32 becomes NAME of i8 with the same shape, and NAME.scale of f32 with one scale per row (the last dim).
#pragma once

#include "quant/quantize.h"

namespace dovetail {

inline std::string ScalesOf(std::string_view state) { return StrCat(state, ".scale"); }

// Every f32 state that is read and written, with rows long enough. Reads become dequantize_rows; what a write replaces of a state it replaces in
// both, as quantize_rows gives it, and rows that no write reaches never change. Other states stay, for the reasons in report.warnings.
// A state whose new contents are computed from the old ones (an accumulator) changes too, with a warning: int8 keeps no small change of a large value.
// report.int8_states gets the names of those that changed.
Status StoreStatesAsInt8(Module& module, const QuantizeOptions& options, QuantizeReport& report);

}  // namespace dovetail
