// Golden files of the passes: tests/passes/<pass>.ir, and what `dovetail opt --test` and `--bless` do with them.
//
// The first line is "// passes: a,b". Cases stand between lines "// -----": a graph in the text form (ir/text.h), a line "// expect", and
// the text after the passes, or "// error: MESSAGE". A case without that line gets it by blessing.
#pragma once

#include <string>

#include "base/status.h"

namespace dovetail {

// Parses `text`, runs the passes (names separated by commas) with their checks, prints. `file_name` is for messages.
Result<std::string> ApplyPasses(const std::string& text, const std::string& passes, const std::string& file_name);

struct GoldenResult {
  size_t cases = 0;
  Status differences;   // OK, or one problem per case whose output is not the expected one
  std::string blessed;  // the file with the outputs in place of what was expected
};
// Fails only where `text` is no golden file.
Result<GoldenResult> RunGolden(const std::string& text, const std::string& file_name);

}  // namespace dovetail
