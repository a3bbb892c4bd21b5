// c10's numbering of element types, as .pte files use it, to and from ours.
#pragma once

#include "core/dtype.h"
#include "format/program_generated.h"

namespace dovetail {

// kNone for a type that Dovetail has no kernels for.
DType FromScalarType(pte::ScalarType type);
// False for kNone and for types that a .pte cannot hold (c64).
bool ToScalarType(DType type, pte::ScalarType* out);

}  // namespace dovetail
