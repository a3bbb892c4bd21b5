// The reference interpreter on small programs.
#include "ir/interpreter.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ir/text.h"

namespace dovetail {
namespace {

Module Parsed(std::string_view text) {
  auto module = Parse(text);
  EXPECT_TRUE(module.ok()) << module.status().ToString();
  return module.ok() ? std::move(*module) : Module();
}

OwnedTensor Floats(Shape shape, std::vector<float> values) {
  OwnedTensor t = OwnedTensor::Make(TensorType(DType::kF32, shape));
  EXPECT_EQ(t.view().nbytes(), values.size() * sizeof(float));
  std::memcpy(t.view().data, values.data(), t.view().nbytes());
  return t;
}
OwnedTensor Floats(std::vector<float> values) { return Floats({Dim(static_cast<int64_t>(values.size()))}, values); }
OwnedTensor Ints(std::vector<int64_t> values) {
  OwnedTensor t = OwnedTensor::Make(TensorType(DType::kI64, {Dim(static_cast<int64_t>(values.size()))}));
  std::memcpy(t.view().data, values.data(), t.view().nbytes());
  return t;
}
std::vector<float> Values(const OwnedTensor& t) {
  EXPECT_EQ(t.type.dtype, DType::kF32);
  return {t.view().as<float>(), t.view().as<float>() + t.view().numel()};
}

// One instance of a module: its states live from call to call.
class Instance {
 public:
  explicit Instance(std::string_view text) : module_(Parsed(text)) {
    auto states = InitStates(module_);
    EXPECT_TRUE(states.ok()) << states.status().ToString();
    if (states.ok()) states_ = std::move(*states);
  }
  Result<std::vector<OwnedTensor>> Call(std::vector<OwnedTensor> inputs, std::string_view graph = "f") {
    return Interpret(module_, *module_.FindGraph(graph), inputs, states_);
  }
  // All outputs, one after the other; empty and a failure when there are none.
  std::vector<std::vector<float>> Run(std::vector<OwnedTensor> inputs, std::string_view graph = "f") {
    auto outputs = Call(std::move(inputs), graph);
    EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
    std::vector<std::vector<float>> values;
    if (outputs.ok())
      for (const OwnedTensor& t : *outputs) values.push_back(Values(t));
    return values;
  }
  std::string Error(std::vector<OwnedTensor> inputs) {
    auto outputs = Call(std::move(inputs));
    return outputs.ok() ? "" : outputs.status().ToString();
  }
  const StateStore& states() const { return states_; }

 private:
  Module module_;
  StateStore states_;
};

using Outputs = std::vector<std::vector<float>>;

TEST(InterpreterTest, ComputesInOrder) {
  Instance m(R"(module {
    constant @w : f32[2,3] = [1.0,2.0,3.0,4.0,5.0,6.0]
    constant @b : f32[2] = [0.5,-0.5]
    graph @f(%x: f32[1,3]) {
      %w = const @w : f32[2,3]
      %b = const @b : f32[2]
      %y = linear %x, %w, %b : f32[1,2]
      %z = linear %x, %w, _ : f32[1,2]
      %s = sub %y, %z {alpha=2} : f32[1,2]
      return %y, %s, %y, %x
    }
  })");
  EXPECT_EQ(m.Run({Floats({1, 3}, {1, 0, -1})}), (Outputs{{-1.5, -2.5}, {2.5, 1.5}, {-1.5, -2.5}, {1, 0, -1}}));
}

TEST(InterpreterTest, AReadIsTheContentsAtThatPoint) {
  // Read, write, read again: the first value stays what it was, also when it is used after the write.
  Instance m(R"(module {
    state @s : f32[2] = [10.0,20.0]
    graph @f(%x: f32[2]) {
      %old = state.read @s : f32[2]
      %sum = add %old, %x : f32[2]
      state.write @s, %sum
      %new = state.read @s : f32[2]
      %d = sub %new, %old : f32[2]
      return %old, %new, %d
    }
  })");
  EXPECT_EQ(m.Run({Floats({1, 2})}), (Outputs{{10, 20}, {11, 22}, {1, 2}}));
  EXPECT_EQ(m.Run({Floats({5, 5})}), (Outputs{{11, 22}, {16, 27}, {5, 5}}));
  EXPECT_EQ(Values(m.states()[0]), (std::vector<float>{16, 27}));
}

TEST(InterpreterTest, TheLastWriteStays) {
  Instance m(R"(module {
    state @s : f32[1] = zeros
    graph @f(%x: f32[1]) {
      %n = neg %x : f32[1]
      state.write @s, %x
      %a = state.read @s : f32[1]
      state.write @s, %n
      return %a
    }
  })");
  EXPECT_EQ(m.Run({Floats({3})}), (Outputs{{3}}));
  EXPECT_EQ(Values(m.states()[0]), (std::vector<float>{-3}));
}

TEST(InterpreterTest, StatesThatTakeEachOthersContents) {
  Instance m(R"(module {
    state @a : f32[1] = [1.0]
    state @b : f32[1] = [2.0]
    graph @f() {
      %a = state.read @a : f32[1]
      %b = state.read @b : f32[1]
      state.write @a, %b
      state.write @b, %a
      return %a, %b
    }
  })");
  EXPECT_EQ(m.Run({}), (Outputs{{1}, {2}}));
  EXPECT_EQ(m.Run({}), (Outputs{{2}, {1}}));
  EXPECT_EQ(m.Run({}), (Outputs{{1}, {2}}));
}

TEST(InterpreterTest, GraphsShareStates) {
  Instance m(R"(module {
    state @cache : f32[4] = zeros
    graph @prefill(%x: f32[2]) {
      %c = state.read @cache : f32[4]
      %u = slice_scatter %c, %x {start=0, end=2} : f32[4]
      state.write @cache, %u
      return
    }
    graph @f(%i: i64[1], %x: f32[1]) {
      %c = state.read @cache : f32[4]
      %u = index_put %c, %i, %x : f32[4]
      state.write @cache, %u
      return %u
    }
  })");
  EXPECT_EQ(m.Run({Floats({1, 2})}, "prefill"), Outputs{});
  EXPECT_EQ(m.Run({Ints({2}), Floats({3})}), (Outputs{{1, 2, 3, 0}}));
  EXPECT_EQ(m.Run({Ints({-1}), Floats({4})}), (Outputs{{1, 2, 3, 4}}));
}

TEST(InterpreterTest, ACallThatFailsNamesTheNode) {
  Instance m(R"(module {
    graph @f(%x: f32[2], %i: i64[1]) {
      %y = index %x, %i : f32[1]
      return %y
    }
  })");
  EXPECT_EQ(m.Run({Floats({1, 2}), Ints({1})}), (Outputs{{2}}));
  EXPECT_EQ(m.Error({Floats({1, 2}), Ints({2})}), "index 2 is out of bounds for dimension 0 with size 2\n  at %y = index");
}

// A region gets a state as an operand and gives its new contents as a result that aliases it.
TEST(InterpreterTest, DelegateWithAnAliasedState) {
  Instance m(R"(module {
    state @k : f32[3] = [1.0,2.0,3.0]
    graph @f(%x: f32[1], %i: i64[1]) {
      %k = state.read @k : f32[3]
      %y, %t = delegate %x, %i, %k {backend="fake", aliases=[-1,2]} : f32[3], f32[3] (%a: f32[1], %p: i64[1], %c: f32[3]) {
        %u = index_put %c, %p, %a : f32[3]
        %n = neg %u : f32[3]
        return %n, %u
      }
      state.write @k, %t
      return %y, %k
    }
  })");
  // %k is a value: what a later node reads of it is the contents before the region ran.
  EXPECT_EQ(m.Run({Floats({9}), Ints({1})}), (Outputs{{-1, -9, -3}, {1, 2, 3}}));
  EXPECT_EQ(Values(m.states()[0]), (std::vector<float>{1, 9, 3}));
  EXPECT_EQ(m.Run({Floats({7}), Ints({0})}), (Outputs{{-7, -9, -3}, {1, 9, 3}}));
  EXPECT_EQ(Values(m.states()[0]), (std::vector<float>{7, 9, 3}));
}

TEST(InterpreterTest, RegionsNestAndMayBeEmpty) {
  Instance m(R"(module {
    graph @f(%x: f32[1]) {
      %a, %b = delegate %x {backend="outer"} : f32[1], f32[1] (%0: f32[1]) {
        %1 = delegate %0 {backend="inner"} : f32[1] (%0: f32[1]) {
          %1 = neg %0 : f32[1]
          return %1
        }
        return %0, %1
      }
      return %a, %b
    }
  })");
  EXPECT_EQ(m.Run({Floats({4})}), (Outputs{{4}, {-4}}));
}

constexpr std::string_view kDynamic = R"(module {
  symbol s0 = 2..4
  graph @f(%x: f32[2*s0+1], %y: f32[s0,3]) {
    %n = full {size=[], fill_value=s0, out_dtype=f32} : f32[]
    %t = slice %x {start=0, end=s0} : f32[s0]
    %r = arange {start=0, end=s0, out_dtype=f32} : f32[s0]
    %p = mul %t, %r : f32[s0]
    return %n, %p
  }
})";

TEST(InterpreterTest, SymbolsTakeTheirValuesFromInputs) {
  Instance m(kDynamic);
  EXPECT_EQ(m.Run({Floats({1, 2, 3, 4, 5}), Floats({2, 3}, std::vector<float>(6))}), (Outputs{{2}, {0, 2}}));
  EXPECT_EQ(m.Run({Floats({1, 2, 3, 4, 5, 6, 7}), Floats({3, 3}, std::vector<float>(9))}), (Outputs{{3}, {0, 2, 6}}));
}

TEST(InterpreterTest, InputsThatDoNotFit) {
  Instance m(kDynamic);
  const OwnedTensor x = Floats({1, 2, 3, 4, 5}), y = Floats({2, 3}, std::vector<float>(6));
  EXPECT_EQ(m.Error({x}), "@f takes 2 inputs, not 1");
  EXPECT_EQ(m.Error({Ints({1, 2, 3, 4, 5}), y}), "input 'x' has dtype i64, expected f32");
  EXPECT_EQ(m.Error({x, Floats({1, 2})}), "input 'y' has rank 1, expected 2 (f32[s0,3])");
  EXPECT_EQ(m.Error({x, Floats({3, 3}, std::vector<float>(9))}), "input 'y' has size 3 in dimension 0, expected s0 = 2");
  EXPECT_EQ(m.Error({x, Floats({2, 2}, std::vector<float>(4))}), "input 'y' has size 2 in dimension 1, expected 3");
  EXPECT_EQ(m.Error({Floats(std::vector<float>(11)), Floats({5, 3}, std::vector<float>(15))}), "input 'x' has size 11 in dimension 0; s0 must be in 2..4");
}

TEST(InterpreterTest, DataThatATextFormLeavesOut) {
  const Module constants = Parsed("module { constant @w : f32[2] = external graph @f() { %w = const @w : f32[2] return %w } }");
  StateStore none;
  auto outputs = Interpret(constants, *constants.graphs[0], {}, none);
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.status().message(), "constant 'w' has no data in this text form");
  const auto states = InitStates(Parsed("module { state @s : f32[2] = external graph @f() { return } }"));
  ASSERT_FALSE(states.ok());
  EXPECT_EQ(states.status().message(), "state 's' has no data in this text form");
}

TEST(InterpreterTest, ObserversSeeEveryValueOnce) {
  const Module module = Parsed(R"(module { graph @f(%x: f32[1]) {
    %a = neg %x : f32[1]
    %b = exp %x : f32[1]
    %y = add %a, %b : f32[1]
    return %y
  } })");
  StateStore none;
  std::string seen;
  const std::vector<OwnedTensor> inputs = {Floats({0})};
  auto outputs = Interpret(module, *module.graphs[0], inputs, none, {[&](const Graph& g, ValueId v, const OwnedTensor& t) {
                             seen += StrCat(g.value(v).name, "=", FormatDouble(Values(t)[0]), " ");
                           }});
  ASSERT_TRUE(outputs.ok());
  EXPECT_EQ(seen, "a=-0.0 b=1.0 y=1.0 ");
}

// In the planned form an operator in place changes what its operand holds, and its result is that memory.
TEST(InterpreterTest, OperatorsInPlace) {
  Instance m(R"(module {
    graph @f(%x: f32[3], %i: i64[1], %v: f32[1]) {
      %c = clone %x : f32[3]
      %y = index_put_ %c, %i, %v : f32[3]
      return %y, %x
    }
  })");
  EXPECT_EQ(m.Run({Floats({1, 2, 3}), Ints({1}), Floats({9})}), (Outputs{{1, 9, 3}, {1, 2, 3}}));
}

}  // namespace
}  // namespace dovetail
