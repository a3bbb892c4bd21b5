#include "compile/compile.h"

#include <unistd.h>

#include <cstdio>
#include <map>
#include <memory>

#include "cli/compile_flags.h"

namespace dovetail::cli {
namespace {

void PrintQuantization(const QuantizeReport& report) {
  std::map<std::string, size_t> became;
  for (const LayerReport& l : report.layers)
    if (!l.became.empty()) ++became[l.op + " -> " + l.became];
  for (const auto& [what, count] : became) std::fprintf(stderr, "  quantized: %zu %s\n", count, what.c_str());
  for (const LayerReport& l : report.layers)
    if (l.became.empty()) std::fprintf(stderr, "  left in float: %s '%s': %s\n", l.op.c_str(), l.path.c_str(), l.reason.c_str());
  for (const std::string& w : report.warnings) std::fprintf(stderr, "  warning: %s\n", w.c_str());
}

// Why products stay outside delegates.
void PrintProductsOutside(const PartitionReport& partition) {
  std::map<std::string, std::pair<size_t, const Placement*>> outside;
  for (const Placement& p : partition.nodes) {
    if (!IsProduct(FindOp(p.op)) || p.backend != "cpu" || p.reason.empty()) continue;
    auto& [count, first] = outside[p.op];
    if (count++ == 0) first = &p;
  }
  for (const auto& [op, nodes] : outside) std::fprintf(stderr, "  on the cpu: %zu x %s - %s\n", nodes.first, op.c_str(), nodes.second->reason.c_str());
}

// One line that is drawn over; it disappears at the end.
void DrawProgress(std::string_view what, size_t done, size_t total) {
  constexpr size_t kWidth = 30;
  const std::string bar(total ? kWidth * done / total : kWidth, '#');
  if (done < total) std::fprintf(stderr, "\r%.*s [%-30s] %zu/%zu", static_cast<int>(what.size()), what.data(), bar.c_str(), done, total);
  else std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
}

Status Compile(const CompileFlags& flags, const std::string& output, bool json) {
  DT_ASSIGN_OR_RETURN(CompileOptions options, flags.Options());
  if (isatty(STDERR_FILENO)) options.quantize.progress = DrawProgress;
  DT_ASSIGN_OR_RETURN(const CompileReport r, CompileFile(flags.model, output, options));
  if (json) {
    nlohmann::ordered_json j;
    j["seconds"] = r.seconds;
    j["peak_anonymous_bytes"] = r.peak_anonymous_bytes;
    j["output_bytes"] = r.output_bytes;
    j["delegate_calls"] = r.partition.delegate_calls;
    j["macs_total"] = r.macs_total;
    j["macs_delegated"] = r.macs_delegated;
    j["linears"] = {{"total", r.linears_total}, {"delegated", r.linears_delegated}, {"quantized", r.linears_quantized}};
    j["planned_bytes"] = r.planned_bytes;
    j["planned_lower_bound_bytes"] = r.planned_lower_bound;
    j["states"] = nlohmann::ordered_json::array();
    for (const CompiledState& s : r.states) j["states"].push_back({{"name", s.name}, {"dtype", s.dtype}, {"shape", s.shape}, {"bytes", s.bytes}});
    j["left_in_float"] = nlohmann::ordered_json::array();
    j["layers"] = nlohmann::ordered_json::array();
    for (const LayerReport& l : r.quantize.layers) {
      if (l.became.empty()) j["left_in_float"].push_back({{"path", l.path}, {"reason", l.reason}, {"location", l.source}});
      j["layers"].push_back({{"path", l.path}, {"op", l.op}, {"became", l.became.empty() ? "f32" : l.became}});
    }
    j["warnings"] = r.quantize.warnings;
    PrintJson(j);
    return OkStatus();
  }
  uint64_t state_bytes = 0;
  for (const CompiledState& s : r.states) state_bytes += s.bytes;
  std::fprintf(stderr, "wrote %s: %s in %s (peak anonymous memory %s)\n", output.c_str(), FormatBytes(r.output_bytes).c_str(), FormatSeconds(r.seconds).c_str(),
               FormatBytes(r.peak_anonymous_bytes).c_str());
  std::fprintf(stderr, "  %s, %.1f%% of multiply-adds in delegates, %zu of %zu linears\n", Counted(r.partition.delegate_calls, "delegate call").c_str(),
               r.macs_total ? 100.0 * static_cast<double>(r.macs_delegated) / static_cast<double>(r.macs_total) : 0.0, r.linears_delegated, r.linears_total);
  PrintProductsOutside(r.partition);
  PrintQuantization(r.quantize);
  const std::string states = r.states.empty() ? "" : StrCat(" (", FormatBytes(state_bytes), ")");
  std::fprintf(stderr, "  %s%s; activations %s planned, lower bound %s\n", Counted(r.states.size(), "state").c_str(), states.c_str(), FormatBytes(r.planned_bytes).c_str(),
               FormatBytes(r.planned_lower_bound).c_str());
  return OkStatus();
}

}  // namespace

void AddCompile(Context& context) {
  auto flags = std::make_shared<CompileFlags>();
  auto output = std::make_shared<std::string>();
  CLI::App* verb = AddVerb(context, "compile", "compiles a .pt2 into a .pte", [flags, output, &context] { return Compile(*flags, *output, context.json); });
  flags->AddTo(verb);
  verb->add_option("-o,--output", *output, "the .pte to write")->required();
}

}  // namespace dovetail::cli
