#include <cstdio>

#include "cli/cli.h"

int main(int argc, char** argv) {
  using namespace dovetail;
  CLI::App app{"Dovetail: compiles exported PyTorch programs (.pt2) and runs them (.pte)", "dovetail"};
  app.require_subcommand(1);
  cli::Context context{app, nullptr};
  cli::AddCompile(context);
  cli::AddRun(context);
  cli::AddGenerate(context);
  cli::AddInspect(context);
  cli::AddExplain(context);
  cli::AddOps(context);
  cli::AddOpt(context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : cli::kWrongUsage;
  }
  const Status status = context.run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return cli::kInputProblem;
}
