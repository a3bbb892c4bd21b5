#include <cstdio>
#include <exception>
#include <string_view>

#include "base/mapped_file.h"
#include "cli/cli.h"

int main(int argc, char** argv) {
  using namespace dovetail;
  CLI::App app{"Dovetail: compiles exported PyTorch programs (.pt2) and runs them (.pte)", "dovetail"};
  app.require_subcommand(1);
  cli::Context context{app, nullptr};
  cli::AddCompile(context);
  cli::AddRun(context);
  cli::AddGenerate(context);
  cli::AddCompare(context);
  cli::AddBench(context);
  cli::AddInspect(context);
  cli::AddExplain(context);
  cli::AddOps(context);
  cli::AddOpt(context);
  app.set_version_flag("--version", "dovetail " DOVETAIL_VERSION);
  std::string verbs;
  bool known = false;
  for (const CLI::App* verb : app.get_subcommands([](CLI::App*) { return true; })) {
    verbs += (verbs.empty() ? "" : ", ") + verb->get_name();
    known |= argc > 1 && verb->get_name() == argv[1];
  }
  if (argc > 1 && argv[1][0] != '-' && !known) {
    std::fprintf(stderr, "error: there is no verb '%s'; the verbs are %s\n", argv[1], verbs.c_str());
    return cli::kWrongUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    app.exit(error);
    if (argc > 4 && !std::string_view(error.what()).starts_with('-'))
      std::fputs("An option of several words takes all that follow it: the file to work on goes before such options\n", stderr);
    return cli::kWrongUsage;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : cli::kWrongUsage;
  }
  RemoveUnfinishedFilesOnSignals();
  Status status;
  try {
    status = context.run();
  } catch (const std::exception& error) {  // no memory, most likely
    std::fprintf(stderr, "error: %s\n", error.what());
    return cli::kInputProblem;
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.code() == Code::kWrongUsage ? cli::kWrongUsage : cli::kInputProblem;
}
