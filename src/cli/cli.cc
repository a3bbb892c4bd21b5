#include "cli/cli.h"

#include <cstdio>

#include "base/mapped_file.h"

namespace dovetail::cli {

CLI::App* AddVerb(Context& context, const std::string& name, const std::string& help, std::function<Status()> run) {
  CLI::App* verb = context.app.add_subcommand(name, help);
  verb->add_flag("--json", context.json, "print one JSON object on stdout");
  verb->callback([&context, run = std::move(run)] { context.run = run; });
  return verb;
}

void PrintJson(const nlohmann::ordered_json& value) {
  const std::string text = value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
}

Result<std::string> ReadTextFile(const std::string& path) {
  DT_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  const auto bytes = file->bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace dovetail::cli
