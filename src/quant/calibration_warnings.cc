#include "quant/calibration_warnings.h"

#include <algorithm>

#include "quant/masks.h"
#include "quant/static_plan.h"

namespace dovetail {
namespace {

constexpr size_t kListed = 12;  // values that a warning names

std::string Listed(const std::vector<std::string>& names) {
  std::string s;
  for (size_t i = 0; i < std::min(names.size(), kListed); ++i) s += StrCat(i ? "; " : "", names[i]);
  if (names.size() > kListed) s += StrCat("; and ", names.size() - kListed, " more");
  return s;
}

// Inputs that were always zero; of a graph without such, the first layer's.
std::vector<std::string> OnlyZeros(const Module& module, const Graph& graph, const std::map<ValueId, Observer>& observed) {
  const auto zero = [&](ValueId v) {
    const auto it = observed.find(v);
    return it != observed.end() && it->second.finite() > 0 && it->second.FullRange() == ValueRange();
  };
  std::vector<std::string> found;
  // A mask that hides nothing, or whose masked elements were left out, is no sign of it.
  const Masks masks = FindMasks(module, graph);
  for (ValueId v : graph.inputs)
    if (zero(v) && !masks.scores[v]) found.push_back(DescribeValue(module, graph, v));
  for (auto id = graph.order.begin(); found.empty() && id != graph.order.end(); ++id)
    if (const Node& n = graph.node(*id); IsLayer(module, graph, n) && zero(n.operands[0])) found.push_back(DescribeValue(module, graph, n.operands[0]));
  return found;
}

}  // namespace

std::string DescribeValue(const Module& module, const Graph& graph, ValueId v) {
  const Value& value = graph.value(v);
  std::string s = value.name.empty() ? StrCat("%", v) : StrCat("%", value.name);
  const Node* n = graph.producer(v);
  if (!n) return StrCat("the input ", s);
  s += StrCat(" of ", GetOp(n->op).name);
  if (const Location* l = module.location(*n)) s += StrCat(" (", l->module_path, l->module_path.empty() || l->source.empty() ? "" : ", ", l->source, ")");
  return s;
}

void WarnOfBadValues(const Module& module, const std::vector<std::string>& files, const WatchedValues& watched, const ObservedValues& observed,
                     QuantizeReport& report) {
  for (size_t g = 0; g < module.graphs.size(); ++g) {
    const Graph& graph = *module.graphs[g];
    std::vector<std::string> bad, unseen;
    if (observed[g].empty() && !watched[g].empty() && module.graphs.size() > 1) {
      std::vector<std::string> inputs;
      for (ValueId v : graph.inputs) inputs.push_back(StrCat(graph.value(v).name, ": ", graph.type(v).ToString()));
      report.warnings.push_back(StrCat("no calibration call is of method @", graph.name, ", so it stays float; one has the inputs ", Listed(inputs)));
      continue;
    }
    auto look = [&](ValueId v) {
      if (!watched[g].contains(v)) return;
      const auto it = observed[g].find(v);
      if (it == observed[g].end() || it->second.finite() == 0) unseen.push_back(DescribeValue(module, graph, v));
      if (it == observed[g].end() || it->second.first_bad_call() == SIZE_MAX) return;
      const Observer& o = it->second;
      const std::string& call = files[o.first_bad_call()];
      bad.push_back(StrCat(DescribeValue(module, graph, v), ": ", o.nans(), " NaN and ", o.infinities(), " infinite, first in call '", call, "'"));
      const bool output = std::find(graph.outputs.begin(), graph.outputs.end(), v) != graph.outputs.end();
      if (output && o.infinities() > 0) bad.back() += " (an output: infinities come back as an end of its range)";
    };
    for (ValueId v : graph.inputs) look(v);
    for (NodeId id : graph.order)
      for (ValueId v : graph.node(id).results) look(v);
    const std::vector<std::string> zeros = OnlyZeros(module, graph, observed[g]);
    if (!zeros.empty())
      report.warnings.push_back(StrCat("every calibration call of @", graph.name, " has nothing but zeros in these, so their ranges, and those of what is ",
                                       "computed from them, are made up: ", Listed(zeros)));
    if (!bad.empty()) report.warnings.push_back(StrCat("calibration of @", graph.name, " met values that are not finite and left them out: ", Listed(bad)));
    if (!unseen.empty())
      report.warnings.push_back(
          StrCat("no calibration call gave a finite value to these of @", graph.name, ", so what needs their range stays float: ", Listed(unseen)));
  }
}

}  // namespace dovetail
