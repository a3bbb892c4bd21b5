// What the verbs share. Each verb is a file that adds its flags to the application and stores what to run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/status.h"

namespace dovetail::cli {

// Exit codes: 0 success, 1 a problem with the input, 2 wrong usage.
inline constexpr int kInputProblem = 1, kWrongUsage = 2;

struct Context {
  CLI::App& app;
  std::function<Status()> run;  // of the verb that was given
  bool json = false;            // --json: one JSON object on stdout and nothing else
};

// A verb with its --json flag.
CLI::App* AddVerb(Context& context, const std::string& name, const std::string& help, std::function<Status()> run);
void PrintJson(const nlohmann::ordered_json& value);
std::string FormatBytes(uint64_t bytes);     // "138.5 MB", "12.3 KB", "96 bytes"
std::string Counted(size_t count, std::string_view noun);  // "1 delegate call", "3 delegate calls"
std::string FormatSeconds(double seconds);   // "1.09 s", "3.2 ms"
Result<std::string> ReadTextFile(const std::string& path);

void AddCompile(Context& context);
void AddRun(Context& context);
void AddGenerate(Context& context);
void AddCompare(Context& context);
void AddBench(Context& context);
void AddInspect(Context& context);
void AddExplain(Context& context);
void AddOps(Context& context);
void AddOpt(Context& context);

struct CompileFlags;

}  // namespace dovetail::cli
