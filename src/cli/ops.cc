#include <cstdio>

#include "cli/cli.h"
#include "ops/op_def.h"

namespace dovetail::cli {

void AddOps(Context& context) {
  AddVerb(context, "ops", "lists the operators", [&context] {
    nlohmann::ordered_json table = nlohmann::ordered_json::array();
    for (uint16_t i = 0; i < static_cast<uint16_t>(OpId::kCount); ++i) {
      const OpDef& op = GetOp(static_cast<OpId>(i));
      if (op.traits & kStructural) continue;
      if (context.json) table.push_back({{"name", op.name}, {"schema", op.schema}, {"program_operator", op.out_variant}, {"imports", op.imports}});
      else std::printf("%-28s %s\n", std::string(op.name).c_str(), std::string(op.schema).c_str());
    }
    if (context.json) PrintJson({{"operators", table}});
    return OkStatus();
  });
}

}  // namespace dovetail::cli
