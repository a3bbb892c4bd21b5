// Programs for the tests of this module, and a machine that runs planned graphs with states as memory.
#pragma once

#include <algorithm>
#include <random>

#include "compile/lower_states.h"
#include "ir/builder.h"
#include "ir/interpreter.h"

namespace dovetail::samples {

// f32[4] everywhere. The states s0..s2 start at 10, 20, 30.
inline const TensorType& FourFloats() {
  static const TensorType type(DType::kF32, {Dim(4)});
  return type;
}

inline OwnedTensor Floats(std::vector<float> v) {
  OwnedTensor t = OwnedTensor::Make(TensorType(DType::kF32, {Dim(static_cast<int64_t>(v.size()))}));
  std::copy(v.begin(), v.end(), t.view().as<float>());
  return t;
}

inline std::vector<float> ToVector(const OwnedTensor& t) { return {t.view().as<float>(), t.view().as<float>() + t.view().numel()}; }

// Random values of reads, updates, arithmetic and copies between three states, in any order and number. The same seed gives the same program.
inline Module RandomProgram(uint32_t seed, size_t nodes) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  Module m;
  m.form = Form::kCore;
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> initial(4, static_cast<float>(10 * (i + 1)));
    std::vector<std::byte> bytes(16);
    std::copy_n(reinterpret_cast<const std::byte*>(initial.data()), 16, bytes.data());
    const std::string name = StrCat("s", i);
    m.states.push_back({name, FourFloats(), MakeOwnedConstant(name, FourFloats(), std::move(bytes))});
  }
  m.graphs.push_back(std::make_unique<Graph>("f"));
  Graph& g = *m.graphs[0];
  std::vector<ValueId> values = {g.AddInput("x", FourFloats()), g.AddInput("y", FourFloats())};
  Builder b(m, g);
  const int64_t places[] = {1, 3};
  const ValueId index = b.Ints(places);
  // Recent values are likelier, so that chains form.
  const auto pick = [&] { return values[below(3) ? values.size() - 1 - below(std::min<size_t>(values.size(), 3)) : below(values.size())]; };
  const OpId unary[] = {OpId::kSin, OpId::kCos, OpId::kNeg};
  const auto emit = [&](OpId op, std::vector<ValueId> operands, NamedAttrs attrs = {}) { return b.Emit(op, std::move(operands), attrs).value(); };
  for (size_t i = 0; i < nodes; ++i) {
    const uint32_t state = static_cast<uint32_t>(below(3));
    switch (below(8)) {
      case 0: values.push_back(b.ReadState(state)); break;
      case 1: b.WriteState(state, pick()); break;
      case 2: {  // as caches are updated
        const ValueId read = b.ReadState(state), half = emit(OpId::kSlice, {pick()}, {{"end", 2}});
        values.push_back(emit(OpId::kIndexPut, {read, index, half}));
        b.WriteState(state, values.back());
        break;
      }
      case 3: {
        const ValueId half = emit(OpId::kSlice, {pick()}, {{"start", 2}});
        values.push_back(emit(OpId::kIndexPut, {pick(), index, half}));
        break;
      }
      case 4: values.push_back(emit(OpId::kAdd, {pick(), pick()})); break;
      case 5: {  // two that share their inputs
        const ValueId p = pick(), q = pick();
        for (OpId op : {OpId::kMaximum, OpId::kMul}) values.push_back(emit(op, {p, q}));
        break;
      }
      default: values.push_back(emit(unary[below(3)], {pick()})); break;
    }
  }
  for (size_t i = 0; i < 3; ++i) g.outputs.push_back(pick());
  g.RemoveDeadNodes();
  return m;
}

// Runs a planned graph as the emitter writes it: a state is one piece of memory, reads are that memory, updates in place change it under
// everybody who looks at it, and a write whose value is the state's memory already does nothing.
class StateMachine {
 public:
  explicit StateMachine(const Module& module) : module_(module), states_(InitStates(module).value()) {}

  Result<std::vector<OwnedTensor>> Call(const std::vector<OwnedTensor>& inputs) {
    const Graph& g = *module_.graphs[0];
    std::vector<OwnedTensor> own(g.num_values());
    std::vector<TensorView> memory(g.num_values());
    for (size_t i = 0; i < inputs.size(); ++i) memory[g.inputs[i]] = (own[g.inputs[i]] = inputs[i]).view();
    for (NodeId id : g.order) {
      const Node& n = g.node(id);
      if (n.op == OpId::kStateRead) {
        memory[n.results[0]] = states_[n.ref].view();
      } else if (n.op == OpId::kStateWrite) {
        uint32_t state;
        if (IsStateMemory(g, n.operands[0], &state) && state == n.ref) continue;
        states_[n.ref] = CopyInto(states_[n.ref], memory[n.operands[0]]);
      } else if (n.op == OpId::kConst) {
        const Constant& c = module_.constants[n.ref];
        OwnedTensor& t = own[n.results[0]] = OwnedTensor::Make(c.type);
        c.CopyTo(t.storage.data());
        memory[n.results[0]] = t.view();
      } else {
        std::vector<TensorView> operands;
        for (ValueId v : n.operands) operands.push_back(v == kNone ? TensorView() : memory[v]);
        TensorView& out = memory[n.results[0]];
        if (n.op == OpId::kIndexPutInplace) out = operands[0];
        else out = (own[n.results[0]] = OwnedTensor::Make(g.type(n.results[0]))).view();
        DT_RETURN_IF_ERROR(GetOp(n.op).reference({operands, n.attrs, std::span(&out, 1), nullptr, {}}));
      }
    }
    std::vector<OwnedTensor> outputs;
    for (ValueId v : g.outputs) outputs.push_back(OwnedTensor::CopyOf(memory[v]));
    return outputs;
  }

  const StateStore& states() const { return states_; }

 private:
  // Keeps the memory where it is.
  static OwnedTensor CopyInto(OwnedTensor& to, const TensorView& from) {
    std::copy_n(from.as<std::byte>(), from.nbytes(), to.view().as<std::byte>());
    return std::move(to);
  }

  const Module& module_;
  StateStore states_;
};

}  // namespace dovetail::samples
