#include <cstdio>
#include <memory>
#include <sstream>

#include "base/mapped_file.h"
#include "cli/cli.h"
#include "ir/text.h"
#include "passes/passes.h"

namespace dovetail::cli {
namespace {

struct OptFlags {
  std::string file, passes;
  bool test = false, bless = false;
};

constexpr std::string_view kCaseLine = "// -----\n";
constexpr std::string_view kExpectLine = "// expect\n";

Result<std::string> Apply(const std::string& text, const std::string& passes, const std::string& name) {
  DT_ASSIGN_OR_RETURN(Module module, Parse(text, name));
  std::stringstream list(passes);
  for (std::string pass; std::getline(list, pass, ',');) {
    const Pass* p = FindPass(pass);
    if (!p) return InvalidArgument("unknown pass '", pass, "'");
    DT_RETURN_IF_ERROR(RunPass(*p, module));
  }
  return Print(module);
}

// A golden file starts with "// passes: a,b". Cases stand between lines "// -----": the input, a line "// expect", the output. A case
// without the line gets it by --bless.
Status Golden(const OptFlags& flags) {
  DT_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.file));
  const std::string head = "// passes: ";
  const size_t line = text.find('\n');
  if (!text.starts_with(head) || line == std::string::npos) return InvalidArgument("'", flags.file, "' does not start with '// passes: NAME,...'");
  const std::string passes = text.substr(head.size(), line - head.size());
  std::string blessed = text.substr(0, line + 1);
  Status failures;
  size_t count = 0;
  for (size_t pos = line + 1; pos <= text.size();) {
    const size_t end = std::min(text.find(kCaseLine, pos), text.size());
    const std::string piece = text.substr(pos, end - pos);
    const size_t split = piece.find(kExpectLine);
    const std::string input = piece.substr(0, split);
    const std::string expected = split == std::string::npos ? "" : piece.substr(split + kExpectLine.size());
    ++count;
    Result<std::string> output = Apply(input, passes, flags.file);
    const std::string got = output.ok() ? *output : "// error: " + std::string(output.status().message()) + "\n";
    if (got != expected && !flags.bless) failures.Also(InvalidArgument("'", flags.file, "' case ", count, " differs; got:\n", got, "expected:\n", expected));
    blessed += input + std::string(kExpectLine) + got;
    if (end >= text.size()) break;
    blessed += kCaseLine;
    pos = end + kCaseLine.size();
  }
  if (flags.bless) {
    DT_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(flags.file));
    DT_RETURN_IF_ERROR(file->Write(blessed.data(), blessed.size()));
    return file->Commit();
  }
  if (failures.ok()) std::fprintf(stderr, "%s: %zu cases pass\n", flags.file.c_str(), count);
  return failures;
}

Status Opt(const OptFlags& flags) {
  if (flags.test || flags.bless) return Golden(flags);
  DT_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.file));
  DT_ASSIGN_OR_RETURN(const std::string output, Apply(text, flags.passes, flags.file));
  std::fputs(output.c_str(), stdout);
  return OkStatus();
}

}  // namespace

void AddOpt(Context& context) {
  auto flags = std::make_shared<OptFlags>();
  CLI::App* verb = AddVerb(context, "opt", "for developers: runs passes on the text form of the IR", [flags] { return Opt(*flags); });
  verb->add_option("FILE", flags->file, "a .ir file")->required();
  verb->add_option("--passes", flags->passes, "names of passes, comma separated");
  verb->add_flag("--test", flags->test, "compare each case of a golden file with its expected output");
  verb->add_flag("--bless", flags->bless, "rewrite the expected outputs of a golden file");
}

}  // namespace dovetail::cli
