// What `inspect` says of QNN delegates.
#pragma once

#include <nlohmann/json.hpp>

#include "dovetail/program.h"

namespace dovetail::cli {

// One entry for each context binary: the SoC from its compile spec; with the QNN library also SDK and interface versions and the graphs. Without it, the
// entry says why. Empty if the program has no QNN delegate.
Result<nlohmann::ordered_json> InspectQnn(const Program& program);

}  // namespace dovetail::cli
