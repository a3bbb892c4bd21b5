#include <cstdio>
#include <map>
#include <memory>

#include "cli/compile_flags.h"
#include "compile/compile.h"

namespace dovetail::cli {
namespace {

Status Explain(const CompileFlags& flags, bool json) {
  DT_ASSIGN_OR_RETURN(const CompileOptions options, flags.Options());
  DT_ASSIGN_OR_RETURN(const CompileReport r, ExplainFile(flags.model, options));
  const PartitionReport& p = r.partition;
  const size_t breaks = p.delegate_calls > 0 ? p.delegate_calls - 1 : 0;
  if (json) {
    nlohmann::ordered_json j;
    j["delegate_calls"] = p.delegate_calls;
    j["graph_breaks"] = breaks;
    j["macs_total"] = r.macs_total;
    j["macs_delegated"] = r.macs_delegated;
    j["nodes"] = nlohmann::ordered_json::array();
    for (const Placement& n : p.nodes)
      j["nodes"].push_back({{"op", n.op}, {"backend", n.backend}, {"reason", n.reason}, {"location", n.source}, {"module", n.module_path}});
    PrintJson(j);
    return OkStatus();
  }
  std::printf("%s, %s, %.1f%% of multiply-adds in delegates\n", Counted(p.delegate_calls, "delegate call").c_str(), Counted(breaks, "graph break").c_str(),
              r.macs_total ? 100.0 * static_cast<double>(r.macs_delegated) / static_cast<double>(r.macs_total) : 0.0);
  std::map<std::string, size_t> taken;
  std::map<std::pair<std::string, std::string>, std::vector<const Placement*>> left;
  for (const Placement& n : p.nodes) {
    if (n.backend != "cpu") ++taken[n.backend];
    else left[{n.reason, n.op}].push_back(&n);
  }
  for (const auto& [backend, count] : taken) std::printf("  %s takes %s\n", backend.c_str(), Counted(count, "operator").c_str());
  for (const auto& [key, nodes] : left) {
    std::printf("  cpu: %zu x %s%s%s\n", nodes.size(), key.second.c_str(), key.first.empty() ? "" : " - ", key.first.c_str());
    if (!nodes[0]->source.empty()) std::printf("      first at %s\n", nodes[0]->source.c_str());
  }
  return OkStatus();
}

}  // namespace

void AddExplain(Context& context) {
  auto flags = std::make_shared<CompileFlags>();
  CLI::App* verb =
      AddVerb(context, "explain", "tells where every operator would run, and why not elsewhere", [flags, &context] { return Explain(*flags, context.json); });
  flags->AddTo(verb);
}

}  // namespace dovetail::cli
