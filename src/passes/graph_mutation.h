// For fuzz targets: a module rebuilt node by node with other operands, attributes and operators here and there, its types inferred anew.
// What no longer fits is left out, so that the result is as valid as the passes may expect.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "ir/builder.h"

namespace dovetail {

class GraphMutation {
 public:
  // Every choice takes a byte of `choices`; after the last one nothing is changed any more.
  GraphMutation(Module& module, std::span<const uint8_t> choices) : module_(module), choices_(choices) {}

  void Run() {
    for (auto& graph : module_.graphs) graph = Rebuild(*graph);
  }

 private:
  size_t Choose(size_t n) {
    if (choices_.empty() || n == 0) return 0;
    const size_t chosen = choices_[0] % n;
    choices_ = choices_.subspan(1);
    return chosen;
  }
  bool Change() {
    if (choices_.empty()) return false;
    return Choose(256) >= 240;
  }

  std::unique_ptr<Graph> Rebuild(const Graph& old) {
    auto graph = std::make_unique<Graph>(old.name);
    Builder builder(module_, *graph);
    values_.clear();
    made_.clear();
    for (ValueId v : old.inputs) Map(v, graph->AddInput(old.value(v).name, old.type(v)));
    for (NodeId id : old.order) {
      Copy(builder, old.node(id));
      if (Change()) Copy(builder, old.node(id));  // nodes alike
    }
    for (size_t i = 0; i < old.outputs.size(); ++i) {
      const auto v = values_.find(old.outputs[i]);
      if (v == values_.end()) continue;
      graph->outputs.push_back(v->second);
      if (!old.output_names.empty()) graph->output_names.push_back(old.output_names[i]);
    }
    if (Change() && !made_.empty() && old.output_names.empty()) graph->outputs.push_back(made_[Choose(made_.size())]);
    return graph;
  }

  void Map(ValueId from, ValueId to) {
    values_[from] = to;
    made_.push_back(to);
  }

  void Copy(Builder& builder, const Node& n) {
    if (n.op == OpId::kConst) return Map(n.results[0], builder.Const(n.ref));
    if (n.op == OpId::kStateRead) return Map(n.results[0], builder.ReadState(n.ref));
    std::vector<ValueId> operands;
    for (ValueId v : n.operands) {
      const auto known = values_.find(v);
      operands.push_back(v == kNone ? kNone : known != values_.end() ? known->second : made_.empty() ? kNone : made_.back());
      if (!made_.empty() && Change()) operands.back() = made_[made_.size() - 1 - Choose(made_.size())];
    }
    if (n.op == OpId::kStateWrite) {
      if (operands[0] != kNone && builder.type(operands[0]) == module_.states[n.ref].type) builder.WriteState(n.ref, operands[0]);
      return;
    }
    if (GetOp(n.op).traits & kStructural) return;
    OpId op = n.op;
    if (Change()) {  // another operator of the same signature
      const auto other = static_cast<OpId>(Choose(static_cast<size_t>(OpId::kCount)));
      if (SameArguments(GetSchema(other), GetSchema(op)) && !(GetOp(other).traits & kStructural)) op = other;
    }
    std::vector<Attr> attrs = n.attrs;
    for (size_t i = 0; i < attrs.size(); ++i)
      if (Change()) attrs[i] = Other(attrs[i]);
    auto results = builder.EmitWith(op, std::move(operands), std::move(attrs), n.results.size());
    if (!results.ok()) return;
    for (size_t r = 0; r < n.results.size(); ++r) Map(n.results[r], (*results)[r]);
  }

  static bool SameArguments(const Schema& a, const Schema& b) {
    return a.results.size() == b.results.size() && !a.list_result && !b.list_result &&
           std::equal(a.args.begin(), a.args.end(), b.args.begin(), b.args.end(), [](const SchemaArg& x, const SchemaArg& y) { return x.kind == y.kind; });
  }

  Dim OtherNumber(Dim old) {
    static constexpr int64_t kNumbers[] = {0, 1, 2, 3, -1, -2, 7, 64, INT64_MAX, INT64_MIN};
    const size_t chosen = Choose(std::size(kNumbers) + 3);
    if (chosen < std::size(kNumbers)) return Dim(kNumbers[chosen]);
    if (chosen == std::size(kNumbers) && !module_.symbols.empty()) return Dim::Symbol(module_.symbols.begin()->first);
    return chosen % 2 == 0 ? old + Dim(1) : old - Dim(1);
  }
  Attr Other(const Attr& a) {
    static constexpr double kNumbers[] = {0, 1, -1, 0.5, 1e-5, 1e30, -INFINITY, NAN};
    if (a.is<bool>()) return Attr(!a.Bool());
    if (a.is<double>()) return Attr(kNumbers[Choose(std::size(kNumbers))]);
    if (const Dim* d = a.get<Dim>()) return Attr(OtherNumber(*d));
    if (a.is<DType>()) {
      static constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kF64, DType::kI64, DType::kI32, DType::kBool, DType::kU8};
      return Attr(kTypes[Choose(std::size(kTypes))]);
    }
    if (const auto* dims = a.get<std::vector<Dim>>()) {
      std::vector<Dim> changed = *dims;
      const size_t at = Choose(changed.size() + 1);
      if (at == changed.size()) changed.push_back(Dim(1));
      else if (Choose(4) == 0) changed.erase(changed.begin() + static_cast<std::ptrdiff_t>(at));
      else changed[at] = OtherNumber(changed[at]);
      return Attr(std::move(changed));
    }
    return a;
  }

  Module& module_;
  std::span<const uint8_t> choices_;
  std::map<ValueId, ValueId> values_;  // of the old graph
  std::vector<ValueId> made_;
};

}  // namespace dovetail
