#include "passes/golden.h"

#include <algorithm>
#include <sstream>

#include "ir/text.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

constexpr std::string_view kHead = "// passes: ";
constexpr std::string_view kCaseLine = "// -----\n";
constexpr std::string_view kExpectLine = "// expect\n";

}  // namespace

Result<std::string> ApplyPasses(const std::string& text, const std::string& passes, const std::string& file_name) {
  DT_ASSIGN_OR_RETURN(Module module, Parse(text, file_name));
  std::stringstream list(passes);
  for (std::string name; std::getline(list, name, ',');) {
    const Pass* pass = FindPass(name);
    if (!pass) return InvalidArgument("unknown pass '", name, "'");
    DT_RETURN_IF_ERROR(RunPass(*pass, module));
  }
  return Print(module);
}

Result<GoldenResult> RunGolden(const std::string& text, const std::string& file_name) {
  const size_t line = text.find('\n');
  if (!text.starts_with(kHead) || line == std::string::npos) return InvalidArgument("'", file_name, "' does not start with '", kHead, "NAME,...'");
  const std::string passes = text.substr(kHead.size(), line - kHead.size());
  GoldenResult result;
  result.blessed = text.substr(0, line + 1);
  for (size_t pos = line + 1; pos <= text.size();) {
    const size_t end = std::min(text.find(kCaseLine, pos), text.size());
    const std::string piece = text.substr(pos, end - pos);
    const size_t split = piece.find(kExpectLine);
    const std::string input = piece.substr(0, split);
    const std::string expected = split == std::string::npos ? "" : piece.substr(split + kExpectLine.size());
    ++result.cases;
    Result<std::string> output = ApplyPasses(input, passes, file_name);
    const std::string got = output.ok() ? *output : StrCat("// error: ", output.status().message(), "\n");
    if (got != expected) {
      const auto first_line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(pos), '\n');
      const std::string where = StrCat("'", file_name, "' case ", result.cases, " (line ", first_line, ")");
      result.differences.Also(InvalidArgument(where, " differs; got:\n", got, "expected:\n", expected));
    }
    result.blessed += input + std::string(kExpectLine) + got;
    if (end >= text.size()) break;
    result.blessed += kCaseLine;
    pos = end + kCaseLine.size();
  }
  return result;
}

}  // namespace dovetail
