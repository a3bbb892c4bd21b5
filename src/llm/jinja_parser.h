#pragma once

#include <string_view>

#include "base/status.h"
#include "llm/jinja_ast.h"

namespace dovetail::jinja {

// Parses a whole template (valid UTF-8). Errors name the line. Nesting is bounded, so that no walk over the tree can
// exhaust the stack.
Result<Body> ParseTemplate(std::string_view source);

}  // namespace dovetail::jinja
