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

namespace {

std::string WithUnit(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

std::string FormatBytes(uint64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (bytes < 1000) return StrCat(bytes, " bytes");
  return bytes < 1000000 ? WithUnit("%.1f KB", b * 1e-3) : WithUnit("%.1f MB", b * 1e-6);
}

std::string Counted(size_t count, std::string_view noun) { return StrCat(count, " ", noun, count == 1 ? "" : "s"); }

std::string FormatSeconds(double seconds) { return seconds < 0.1 ? WithUnit("%.1f ms", seconds * 1e3) : WithUnit("%.2f s", seconds); }

Result<std::string> ReadTextFile(const std::string& path) {
  DT_ASSIGN_OR_RETURN(const std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  const auto bytes = file->bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace dovetail::cli
