// Which values are rows of a state is found first, in two directions:
// - from reads on: what holds a state's rows moved about. Where such a value is returned, the state stays float.
// - from writes back: what becomes a state's rows. There an operator that merges a state's rows with others works on int8, the others
//   quantized. Elsewhere only what moves rows of states alone does, so that nothing is quantized that no state holds.
// A value written that is neither is quantized as a whole. Rows that it took over from the state keep their bits, since quantize_rows gives
// back the integers and scales that dequantize_rows had.
// Then one walk replaces nodes: a read by dequantize_rows of the two reads, an operator on such values by itself on rows and on scales
// with a dequantize_rows behind it, a write by two.
#include "quant/state_storage.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "ops/op_def.h"
#include "quant/row_moves.h"

namespace dovetail {
namespace {

// A row of one element is as large as its scale.
constexpr int64_t kLeastWidth = 2;

using States = std::set<uint32_t>;

// For each value of the graph, the states whose rows it holds.
std::vector<States> Holds(const Module& module, const Graph& g) {
  std::vector<States> holds(g.num_values());
  for (NodeId id : g.order) {
    const Node& n = g.node(id);
    if (n.op == OpId::kStateRead) holds[n.results[0]] = {n.ref};
    for (size_t i : RowOperands(module, g, n)) holds[n.results[0]].insert(holds[n.operands[i]].begin(), holds[n.operands[i]].end());
  }
  return holds;
}

// Of states that stay float: why. Empty: the state can be int8.
std::vector<std::string> Obstacles(const Module& module, const QuantizeOptions& options) {
  std::vector<std::string> why(module.states.size());
  States read, written, returned;
  for (const auto& g : module.graphs) {
    for (NodeId id : g->order) {
      if (g->node(id).op == OpId::kStateRead) read.insert(g->node(id).ref);
      if (g->node(id).op == OpId::kStateWrite) written.insert(g->node(id).ref);
    }
    const std::vector<States> holds = Holds(module, *g);
    for (ValueId v : g->outputs) returned.insert(holds[v].begin(), holds[v].end());
  }
  for (uint32_t i = 0; i < why.size(); ++i) {
    const State& s = module.states[i];
    const auto finite = [&] {
      std::vector<float> values(s.initial.nbytes() / sizeof(float));
      s.initial.CopyTo(reinterpret_cast<std::byte*>(values.data()));
      return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
    };
    const std::string scales = ScalesOf(s.name);
    if (KeptFloat(options, s.name)) why[i] = "--keep-float asks for it";
    else if (s.type.dtype != DType::kF32) why[i] = StrCat("it is ", Name(s.type.dtype), ", and only f32 is stored as int8");
    else if (s.type.rank() == 0) why[i] = "it is one number";
    else if (s.type.shape.back().value() < kLeastWidth) why[i] = StrCat("its rows of ", s.type.shape.back().value(), " are too short for a scale each");
    else if (!read.contains(i)) why[i] = "the model never reads it";
    else if (!written.contains(i)) why[i] = "the model never writes it";
    else if (returned.contains(i)) why[i] = "the model returns its contents as they are";
    else if (!s.initial.data_known) why[i] = "its initial contents are not in the file";
    else if (!finite()) why[i] = "its initial contents are not all finite";
    else if (std::any_of(module.states.begin(), module.states.end(), [&](const State& o) { return o.name == scales; }))
      why[i] = StrCat("there is a state '", scales, "' already");
  }
  return why;
}

// The initial contents as two.
Result<std::pair<State, State>> Split(const State& s) {
  Shape rows = s.type.shape;
  rows[rows.rank() - 1] = 1;
  const TensorType types[] = {TensorType(DType::kI8, s.type.shape), TensorType(DType::kF32, rows)};
  std::vector<std::byte> from(s.initial.nbytes()), to[2];
  s.initial.CopyTo(from.data());
  const auto view = [](const TensorType& type, std::vector<std::byte>& bytes) {
    TensorView v;
    v.dtype = type.dtype;
    for (Dim d : type.shape) v.sizes[v.rank++] = d.value();
    bytes.resize(v.nbytes());
    v.data = bytes.data();
    return v;
  };
  const TensorView in[] = {view(s.type, from)}, out[] = {view(types[0], to[0]), view(types[1], to[1])};
  DT_RETURN_IF_ERROR(GetOp(OpId::kQuantizeRows).reference({in, {}, out, nullptr, {}}));
  const std::string scales = ScalesOf(s.name);
  return std::pair(State{s.name, types[0], MakeOwnedConstant(s.name, types[0], std::move(to[0]))},
                   State{scales, types[1], MakeOwnedConstant(scales, types[1], std::move(to[1]))});
}

class StateStorage {
 public:
  StateStorage(Module& module, const QuantizeOptions& options, QuantizeReport& report) : module_(module), options_(options), report_(report) {}

  Status Run() {
    DT_RETURN_IF_ERROR(SplitStates());
    for (auto& g : module_.graphs) {
      FindWanted(*g);
      DT_ASSIGN_OR_RETURN([[maybe_unused]] const bool changed, RewriteGraph(module_, *g, [&](RewriteContext& c, NodeId id) { return Rule(c, id); }));
    }
    return OkStatus();
  }

 private:
  // Scales stand right behind their state, and graphs refer to states by their new numbers.
  Status SplitStates() {
    const std::vector<std::string> obstacles = Obstacles(module_, options_);
    std::vector<uint32_t> moved;
    std::vector<State> states;
    for (size_t i = 0; i < obstacles.size(); ++i) {
      State& s = module_.states[i];
      moved.push_back(static_cast<uint32_t>(states.size()));
      if (!obstacles[i].empty()) {
        report_.warnings.push_back(StrCat("state '", s.name, "' stays ", s.type.dtype == DType::kF32 ? "float" : "as it is", ": ", obstacles[i]));
        states.push_back(std::move(s));
        continue;
      }
      report_.int8_states.push_back(s.name);
      DT_ASSIGN_OR_RETURN(auto pair, Split(s));
      split_.insert(moved.back());
      states.push_back(std::move(pair.first));
      states.push_back(std::move(pair.second));
    }
    module_.states = std::move(states);
    for (auto& g : module_.graphs)
      for (NodeId id : g->order)
        if (Node& n = g->node(id); n.op == OpId::kStateRead || n.op == OpId::kStateWrite) n.ref = moved[n.ref];
    return OkStatus();
  }

  // Values that become rows of a state.
  void FindWanted(const Graph& g) {
    wanted_.assign(g.num_values(), false);
    const Module& module = module_;
    for (size_t i = g.order.size(); i-- > 0;) {
      const Node& n = g.node(g.order[i]);
      if (n.op == OpId::kStateWrite && split_.contains(n.ref)) wanted_[n.operands[0]] = true;
      if (n.results.empty() || !wanted_[n.results[0]]) continue;
      for (size_t operand : RowOperands(module, g, n)) wanted_[n.operands[operand]] = true;
    }
  }

  Result<Replacement> Rule(RewriteContext& c, NodeId id) {
    const Node& n = c.graph.node(id);
    Builder& b = c.builder;
    if (n.op == OpId::kStateRead && split_.contains(n.ref)) {
      const uint32_t state = n.ref;
      const ValueId rows = b.ReadState(state), scale = b.ReadState(state + 1);
      return Dequantized(b, {rows, scale});
    }
    if (n.op == OpId::kStateWrite && split_.contains(n.ref)) {
      const uint32_t state = n.ref;
      const ValueId v = n.operands[0];
      std::optional<RowPair> pair = PairOf(c.graph, v);
      if (!pair) {
        DT_ASSIGN_OR_RETURN(pair, QuantizeRows(b, v));
        WarnOfArithmetic(c.module.states[state].name);
      }
      b.WriteState(state, pair->rows);
      b.WriteState(state + 1, pair->scale);
      return Replacement(std::vector<ValueId>());
    }
    size_t pairs = 0;
    const std::vector<size_t> operands = RowOperands(c.module, c.graph, n);
    for (size_t i : operands) pairs += PairOf(c.graph, n.operands[i]).has_value();
    const bool wanted = !n.results.empty() && n.results[0] < wanted_.size() && wanted_[n.results[0]];
    if (pairs == 0 || (pairs < operands.size() && !wanted)) return Replacement();
    DT_ASSIGN_OR_RETURN(const RowPair pair, MovePairs(c, id));
    return Dequantized(b, pair);
  }

  void WarnOfArithmetic(const std::string& state) {
    std::string warning = StrCat("state '", state, "' is computed anew by each call, not written by rows: as int8 it keeps no small change of a large value; --keep-float '",
                                 state, "' leaves it in float");
    if (std::find(report_.warnings.begin(), report_.warnings.end(), warning) == report_.warnings.end()) report_.warnings.push_back(std::move(warning));
  }

  static Result<Replacement> Dequantized(Builder& b, const RowPair& pair) {
    DT_ASSIGN_OR_RETURN(const ValueId v, b.Emit(OpId::kDequantizeRows, {pair.rows, pair.scale}));
    return Replacement(std::vector<ValueId>{v});
  }

  Module& module_;
  const QuantizeOptions& options_;
  QuantizeReport& report_;
  std::set<uint32_t> split_;  // the numbers of states that are i8; the scales are the next
  std::vector<bool> wanted_;  // of the graph under way
};

}  // namespace

Status StoreStatesAsInt8(Module& module, const QuantizeOptions& options, QuantizeReport& report) { return StateStorage(module, options, report).Run(); }

}  // namespace dovetail
