#include "quant/fixed_warnings.h"

#include <algorithm>
#include <cstdio>

#include "quant/calibration_warnings.h"
#include "quant/layers.h"

namespace dovetail {
namespace {

// Whether each write of the state is made by moving its rows and others.
bool WrittenByRows(const Module& module, const FixedPlan& plan, uint32_t state) {
  for (size_t g = 0; g < module.graphs.size(); ++g) {
    const Graph& graph = *module.graphs[g];
    for (NodeId id : graph.order) {
      const Node& n = graph.node(id);
      if (n.op != OpId::kStateWrite || n.ref != state) continue;
      const NodeId producer = graph.value(n.operands[0]).producer;
      if (producer != kNone && plan.quantized(g, producer) && plan.role(g, producer) != StaticRole::kMove) return false;
    }
  }
  return true;
}

// How --keep-float names a node, or what it is computed from.
std::string WayOut(const Module& module, const Graph& graph, ValueId v) {
  for (const Node* n = graph.producer(v); n;) {
    const Location* l = module.location(*n);
    if (IsLayer(module, graph, *n)) return StrCat("--keep-float '", LayerPath(module, graph, *n), "'");
    if (l && !l->module_path.empty()) return StrCat("--keep-float '", l->module_path, "'");
    const auto next = std::find_if(n->operands.begin(), n->operands.end(), [&](ValueId o) {
      return o != kNone && graph.type(o).dtype == DType::kF32 && graph.producer(o) && graph.producer(o)->op != OpId::kConst;
    });
    n = next == n->operands.end() ? nullptr : graph.producer(*next);
  }
  return "--keep-float with the name of its module";
}

// Whether few or masked elements, large as masks are, leave the others no part of the range.
bool TakesRange(const Observer& seen) {
  const ValueRange range = seen.FullRange();
  return std::max(-range.low, range.high) > -kMaskedFrom && seen.NearZero() > 0.25;
}

}  // namespace

void WarnOfStates(const Module& module, const FixedPlan& plan, QuantizeReport& report) {
  for (uint32_t s = 0; s < module.states.size(); ++s) {
    const State& state = module.states[s];
    if (state.type.dtype != DType::kF32) continue;
    if (!plan.integer_state(s)) {
      const std::string& reason = plan.state_reason(s);
      report.warnings.push_back(StrCat("state '", state.name, "' stays float: ", reason.empty() ? "nothing in fixed point reads or writes it" : reason));
    } else if (!WrittenByRows(module, plan, s)) {
      report.warnings.push_back(StrCat("state '", state.name, "' is computed anew by each call, not written by rows: as integers it keeps no small change of ",
                                       "a large value; --keep-float '", state.name, "' leaves it in float"));
    }
  }
}

void WarnOfMasks(const Module& module, const FixedPlan& plan, const FixedObservation& observed, QuantizeReport& report) {
  for (size_t g = 0; g < module.graphs.size(); ++g) {
    const Graph& graph = *module.graphs[g];
    const Masks& masks = plan.masks(g);
    for (size_t i = 0; i < graph.outputs.size(); ++i) {
      const ValueId v = graph.outputs[i];
      if (!masks.hidden[v] || !plan.integer(g, v)) continue;
      report.warnings.push_back(StrCat("output ", i, " of @", graph.name, ", ", DescribeValue(module, graph, v), ", is masked: its elements below ",
                                       static_cast<int>(kMaskedFrom), ", -inf too, have no part of its range and come back as its lowest number; ", WayOut(module, graph, v),
                                       " keeps them as they are"));
    }
    std::vector<bool> lost(graph.num_values(), false);  // warned of
    for (NodeId id : graph.order) {
      const Node& n = graph.node(id);
      if (n.results.empty() || !plan.quantized(g, id) || plan.masked(g, n.results[0])) continue;
      const ValueId result = n.results[0];
      lost[result] = std::any_of(n.operands.begin(), n.operands.end(), [&](ValueId v) { return v != kNone && lost[v]; });
      const auto low = [&](ValueId v) {
        const auto it = v == kNone || !masks.made[v] ? observed.values[g].end() : observed.values[g].find(v);
        return it != observed.values[g].end() && !plan.masked(g, v) && it->second.FullRange().low < kMaskedFrom;
      };
      if (std::any_of(n.operands.begin(), n.operands.end(), low)) {
        lost[result] = true;
        report.warnings.push_back(StrCat(DescribeValue(module, graph, n.results[0]), " is computed from masked elements, whose very low numbers take the ",
                                         "range of the others; ", WayOut(module, graph, n.results[0]), " leaves it in float"));
      }
      if (const auto it = observed.values[g].find(result); !lost[result] && !masks.made[result] && it != observed.values[g].end() && TakesRange(it->second)) {
        lost[result] = true;
        const ValueRange range = it->second.FullRange();
        char reach[64];
        std::snprintf(reach, sizeof reach, "%g to %g", static_cast<double>(range.low), static_cast<double>(range.high));
        report.warnings.push_back(StrCat(DescribeValue(module, graph, result), " reaches from ", reach, ", but many of its elements are so ",
                                         "near 0 that they lose most of their bits, or all; if the large ones are a mask, masked_fill with -inf, which has no part in a range, keeps ",
                                         "the others right"));
      }
    }
  }
}

}  // namespace dovetail
