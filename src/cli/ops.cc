#include <cstdio>

#include "backends/qnn/backend.h"
#include "backends/xnnpack/backend.h"
#include "cli/cli.h"
#include "ops/op_def.h"

namespace dovetail::cli {
namespace {

std::string Joined(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ",") + name;
  return list;
}

}  // namespace

void AddOps(Context& context) {
  AddVerb(context, "ops", "lists the operators and the backends that take them", [&context] {
    nlohmann::ordered_json table = nlohmann::ordered_json::array();
    for (uint16_t i = 0; i < static_cast<uint16_t>(OpId::kCount); ++i) {
      const OpDef& op = GetOp(static_cast<OpId>(i));
      if (op.traits & kStructural) continue;
      // What is in the table runs on the cpu; a lowering may still refuse a node, and `explain` says why.
      std::vector<std::string> backends = {"cpu"};
      if (QnnLowers(static_cast<OpId>(i))) backends.insert(backends.begin(), "qnn");
      if (XnnpackBackend().lowers(static_cast<OpId>(i))) backends.insert(backends.begin(), "xnnpack");
      if (context.json)
        table.push_back({{"name", op.name}, {"schema", op.schema}, {"program_operator", op.out_variant}, {"imports", op.imports}, {"backends", backends}});
      else std::printf("%-26s %-16s %s\n", std::string(op.name).c_str(), Joined(backends).c_str(), std::string(op.schema).c_str());
    }
    if (context.json) PrintJson({{"operators", table}});
    return OkStatus();
  });
}

}  // namespace dovetail::cli
