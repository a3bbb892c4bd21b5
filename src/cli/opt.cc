#include <cstdio>
#include <memory>

#include "base/mapped_file.h"
#include "cli/cli.h"
#include "passes/golden.h"

namespace dovetail::cli {
namespace {

struct OptFlags {
  std::string file, passes;
  bool test = false, bless = false;
};

Status Golden(const OptFlags& flags) {
  DT_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.file));
  DT_ASSIGN_OR_RETURN(GoldenResult result, RunGolden(text, flags.file));
  if (flags.bless) {
    DT_ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file, AtomicFile::Create(flags.file));
    DT_RETURN_IF_ERROR(file->Write(result.blessed.data(), result.blessed.size()));
    return file->Commit();
  }
  if (result.differences.ok()) std::fprintf(stderr, "%s: %zu cases pass\n", flags.file.c_str(), result.cases);
  return std::move(result.differences);
}

Status Opt(const OptFlags& flags, bool json) {
  if (flags.test || flags.bless) return Golden(flags);
  DT_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(flags.file));
  DT_ASSIGN_OR_RETURN(const std::string output, ApplyPasses(text, flags.passes, flags.file));
  if (json) PrintJson({{"text", output}});
  else std::fputs(output.c_str(), stdout);
  return OkStatus();
}

}  // namespace

void AddOpt(Context& context) {
  auto flags = std::make_shared<OptFlags>();
  CLI::App* verb = AddVerb(context, "opt", "for developers: runs passes on the text form of the IR", [flags, &context] { return Opt(*flags, context.json); });
  verb->add_option("FILE", flags->file, "a .ir file")->required();
  verb->add_option("--passes", flags->passes, "names of passes, comma separated");
  verb->add_flag("--test", flags->test, "compare each case of a golden file with its expected output");
  verb->add_flag("--bless", flags->bless, "rewrite the expected outputs of a golden file");
}

}  // namespace dovetail::cli
