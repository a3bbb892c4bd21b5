// Sizes in an export are sympy expressions in sympy's `srepr` form:
//   Add(Mul(Integer(2), Symbol('s27', positive=True, integer=True)), Integer(1))
#pragma once

#include <string_view>

#include "base/status.h"
#include "core/dim.h"

namespace dovetail::pt2 {

// Fails with a message that names the function that has no meaning as a Dim.
Result<Dim> ParseSympy(std::string_view srepr);

}  // namespace dovetail::pt2
