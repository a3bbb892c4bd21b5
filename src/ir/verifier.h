// The verifier: runs after every pass, in every build.
#pragma once

#include <set>
#include <string>

#include "ir/graph.h"

namespace dovetail {

// Everything that must hold in every form, and the rules of `module.form`: operands are defined before use, argument counts and
// kinds follow the schema, result types are what inference gives, states and constants exist, regions agree with their node.
Status Verify(const Module& module);

// Which states a module's graphs read and write, by "graph.state".
struct StateSets {
  std::set<std::string> read, written;
};
StateSets CollectStates(const Module& module);
// The set written must be equal, the set read may only shrink.
Status CheckStates(const StateSets& before, const StateSets& after);

}  // namespace dovetail
