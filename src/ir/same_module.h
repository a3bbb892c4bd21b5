// For tests: whether two modules are the same program.
#pragma once

#include <string>
#include <unordered_map>

#include "ir/graph.h"

namespace dovetail {

// "" or where they differ. Value names other than inputs', locations, files and output names are no part of the program; data that
// only one of them has (`external` in a text form) is not compared.
inline std::string DifferenceOf(const Module& a, const Module& b);

namespace internal {

inline bool SameData(const Constant& a, const Constant& b) {
  if (!a.data_known || !b.data_known) return true;
  std::vector<std::byte> x(a.nbytes()), y(b.nbytes());
  a.CopyTo(x.data());
  b.CopyTo(y.data());
  return x == y;
}

inline std::string DifferenceOf(const Graph& a, const Graph& b) {
  if (a.inputs.size() != b.inputs.size() || a.outputs.size() != b.outputs.size() || a.order.size() != b.order.size()) return "sizes of the graph";
  std::unordered_map<ValueId, ValueId> other = {{kNone, kNone}};
  auto same = [&](const std::vector<ValueId>& x, const std::vector<ValueId>& y) {
    if (x.size() != y.size()) return false;
    for (size_t i = 0; i < x.size(); ++i)
      if (!other.contains(x[i]) || other.at(x[i]) != y[i]) return false;
    return true;
  };
  auto define = [&](ValueId x, ValueId y) {
    other[x] = y;
    return a.type(x) == b.type(y);
  };
  for (size_t i = 0; i < a.inputs.size(); ++i)
    if (!define(a.inputs[i], b.inputs[i]) || a.value(a.inputs[i]).name != b.value(b.inputs[i]).name) return StrCat("input ", i);
  for (size_t i = 0; i < a.order.size(); ++i) {
    const Node &m = a.node(a.order[i]), &n = b.node(b.order[i]);
    const std::string where = StrCat("node ", i, " (", GetOp(m.op).name, ")");
    if (m.op != n.op || m.ref != n.ref || !same(m.operands, n.operands) || m.results.size() != n.results.size()) return where;
    if (m.attrs != n.attrs) return where + ": attributes";
    for (size_t r = 0; r < m.results.size(); ++r)
      if (!define(m.results[r], n.results[r])) return where + ": types";
    if (!m.region != !n.region) return where + ": region";
    if (!m.region) continue;
    if (m.region->backend != n.region->backend || m.region->aliases != n.region->aliases) return where + ": backend or aliases";
    if (std::string inside = DifferenceOf(*m.region->body, *n.region->body); !inside.empty()) return where + ": " + inside;
  }
  return same(a.outputs, b.outputs) ? "" : "outputs";
}

}  // namespace internal

inline std::string DifferenceOf(const Module& a, const Module& b) {
  if (a.symbols != b.symbols) return "symbols";
  if (a.constants.size() != b.constants.size() || a.states.size() != b.states.size() || a.graphs.size() != b.graphs.size()) return "sizes of the module";
  for (size_t i = 0; i < a.constants.size(); ++i) {
    const Constant &x = a.constants[i], &y = b.constants[i];
    if (x.name != y.name || x.type != y.type || !internal::SameData(x, y)) return "constant " + x.name;
  }
  for (size_t i = 0; i < a.states.size(); ++i) {
    const State &x = a.states[i], &y = b.states[i];
    if (x.name != y.name || x.type != y.type || !internal::SameData(x.initial, y.initial)) return "state " + x.name;
  }
  for (size_t i = 0; i < a.graphs.size(); ++i) {
    if (a.graphs[i]->name != b.graphs[i]->name) return "graph names";
    if (std::string inside = internal::DifferenceOf(*a.graphs[i], *b.graphs[i]); !inside.empty()) return StrCat("@", a.graphs[i]->name, ": ", inside);
  }
  return "";
}

}  // namespace dovetail
