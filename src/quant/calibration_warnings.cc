#include "quant/calibration_warnings.h"

#include <algorithm>

namespace dovetail {
namespace {

constexpr size_t kListed = 12;  // values that a warning names

// "%y of linear (layers.0.q_proj, model.py:12)"
std::string DescribeValue(const Module& module, const Graph& graph, ValueId v) {
  const Value& value = graph.value(v);
  std::string s = value.name.empty() ? StrCat("%", v) : StrCat("%", value.name);
  const Node* n = graph.producer(v);
  if (!n) return StrCat("the input ", s);
  s += StrCat(" of ", GetOp(n->op).name);
  if (const Location* l = module.location(*n)) s += StrCat(" (", l->module_path, l->module_path.empty() || l->source.empty() ? "" : ", ", l->source, ")");
  return s;
}

std::string Listed(const std::vector<std::string>& names) {
  std::string s;
  for (size_t i = 0; i < std::min(names.size(), kListed); ++i) s += StrCat(i ? "; " : "", names[i]);
  if (names.size() > kListed) s += StrCat("; and ", names.size() - kListed, " more");
  return s;
}

}  // namespace

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
    };
    for (ValueId v : graph.inputs) look(v);
    for (NodeId id : graph.order)
      for (ValueId v : graph.node(id).results) look(v);
    if (!bad.empty()) report.warnings.push_back(StrCat("calibration of @", graph.name, " met values that are not finite and left them out: ", Listed(bad)));
    if (!unseen.empty())
      report.warnings.push_back(
          StrCat("no calibration call gave a finite value to these of @", graph.name, ", so what needs their range stays float: ", Listed(unseen)));
  }
}

}  // namespace dovetail
