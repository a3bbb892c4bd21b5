// One broken graph for each rule of the verifier.
#include "ir/verifier.h"

#include <gtest/gtest.h>

#include <functional>

#include "ir/builder.h"
#include "ir/text.h"

namespace dovetail {
namespace {

// A sound module with a constant, a state and a delegate with an aliased state.
Module Sound() {
  auto module = Parse(R"(module {
    constant @w : f32[2] = [1.0,2.0]
    state @s : f32[2] = zeros
    graph @f(%x: f32[2], %i: i64[2]) {
      %w = const @w : f32[2]
      %s = state.read @s : f32[2]
      %a = add %x, %w {alpha=2} : f32[2]
      %y, %t = delegate %a, %s {backend="cpu", aliases=[-1,1]} : f32[2], f32[2] (%p: f32[2], %q: f32[2]) {
        %r = add %p, %q : f32[2]
        return %p, %r
      }
      state.write @s, %t
      %c = cat %y, %x : f32[4]
      return %c
    }
  })");
  EXPECT_TRUE(module.ok()) << module.status().ToString();
  return module.ok() ? std::move(*module) : Module();
}

enum NodeIndex : size_t { kW, kS, kA, kDelegate, kWrite, kCat };

Node& NodeAt(Module& m, size_t i) { return m.graphs[0]->node(m.graphs[0]->order[i]); }

struct Rule {
  const char* name;
  std::function<void(Module&)> break_it;
  const char* message;
};

const Rule kRules[] = {
    {"OperandDefined", [](Module& m) { NodeAt(m, kA).operands[0] = NodeAt(m, kCat).results[0]; }, "operand is used before it is defined"},
    {"OperandExists", [](Module& m) { NodeAt(m, kA).operands[0] = 1000; }, "operand is used before it is defined"},
    {"OwnResult", [](Module& m) { NodeAt(m, kA).operands[0] = NodeAt(m, kA).results[0]; }, "operand is used before it is defined"},
    {"OperandCount", [](Module& m) { NodeAt(m, kA).operands.pop_back(); }, "operator add takes 2 tensors, not 1"},
    {"OperandNeeded", [](Module& m) { NodeAt(m, kA).operands[1] = kNone; }, "operator add needs its operand 'other'"},
    {"OperandNeededInList", [](Module& m) { NodeAt(m, kCat).operands[1] = kNone; }, "operator cat needs its operand 'tensors'"},
    {"AttributeCount", [](Module& m) { NodeAt(m, kA).attrs.clear(); }, "operator add takes 1 attributes"},
    {"AttributeKind", [](Module& m) { NodeAt(m, kA).attrs[0] = Attr("two"); }, "attribute 'alpha' of add cannot be \"two\""},
    {"AttributeNone", [](Module& m) { NodeAt(m, kA).attrs[0] = Attr(); }, "attribute 'alpha' of add cannot be none"},
    {"ResultCount", [](Module& m) { NodeAt(m, kA).results.clear(); }, "operator add has 1 results, not 0"},
    {"ResultType",
     [](Module& m) { m.graphs[0]->value(NodeAt(m, kA).results[0]).type.dtype = DType::kF64; },
     "result 0 has type f64[2] where the operands give f32[2]"},
    {"Inference", [](Module& m) { NodeAt(m, kCat).attrs[0] = Attr(3); }, "dimension 3 of a tensor of rank 1"},
    {"ResultOnce", [](Module& m) { NodeAt(m, kS).results[0] = NodeAt(m, kW).results[0]; }, "a result is defined twice"},
    {"ResultExists", [](Module& m) { NodeAt(m, kA).results[0] = 1000; }, "a result is defined twice"},
    {"NodeOnce", [](Module& m) { m.graphs[0]->order.push_back(m.graphs[0]->order[kA]); }, "a result is defined twice"},
    {"NodeExists", [](Module& m) { m.graphs[0]->order.push_back(1000); }, "graph @f orders a node that does not exist"},
    {"OperatorKnown", [](Module& m) { NodeAt(m, kA).op = OpId::kCount; }, "unknown operator"},
    {"InputExists", [](Module& m) { m.graphs[0]->inputs.push_back(1000); }, "graph @f has an input that does not exist"},
    {"OutputDefined", [](Module& m) { m.graphs[0]->outputs.push_back(1000); }, "graph @f returns a value that is not defined"},
    {"OutputNames", [](Module& m) { m.graphs[0]->output_names = {"a", "b"}; }, "graph @f has 1 outputs and 2 names for them"},
    {"GraphNames", [](Module& m) { m.graphs.push_back(std::make_unique<Graph>("f")); }, "two graphs are named 'f'"},
    {"ConstantExists", [](Module& m) { NodeAt(m, kW).ref = 7; }, "a constant that does not exist"},
    {"ConstantType", [](Module& m) { m.constants[0].type.shape[0] = 3; }, "type differs from the constant's"},
    {"StateExists", [](Module& m) { NodeAt(m, kS).ref = kNone; }, "a state that does not exist"},
    {"StateReadType",
     [](Module& m) { m.states[0].type.shape = m.states[0].initial.type.shape = Shape({Dim(3)}); },
     "type differs from the state's"},
    {"StateWriteType", [](Module& m) { NodeAt(m, kWrite).operands[0] = m.graphs[0]->inputs[1]; }, "writes i64[2] to state 's' of type f32[2]"},
    {"StateInitialType", [](Module& m) { m.states[0].type.dtype = DType::kI32; }, "state 's' starts with another type"},
    {"StateShape", [](Module& m) { m.states[0].type.shape[0] = Dim::Symbol("s0"); }, "state 's' has a dynamic shape"},
    {"StateNames",
     [](Module& m) { m.states.push_back({"s", m.states[0].type, m.states[0].initial}); },
     "two states are named 's'"},
    {"StateInRegion",
     [](Module& m) {
       Node& inside = NodeAt(m, kDelegate).region->body->node(0);
       inside.op = OpId::kStateWrite;
       inside.operands.pop_back();
       inside.attrs.clear();
     },
     "a state inside a region"},
    {"DelegateForm", [](Module& m) { m.form = Form::kCore; }, "a delegate before partitioning"},
    {"DelegateRegion", [](Module& m) { NodeAt(m, kDelegate).region.reset(); }, "a delegate without a region"},
    {"DelegateCounts", [](Module& m) { NodeAt(m, kDelegate).operands.pop_back(); }, "operands and results differ in number from its region's"},
    {"DelegateOperand",
     [](Module& m) { NodeAt(m, kDelegate).operands[0] = m.graphs[0]->inputs[1]; },
     "operand 0 of a delegate differs in type from its region's input"},
    {"DelegateResult",
     [](Module& m) { m.graphs[0]->value(NodeAt(m, kDelegate).results[0]).type.shape[0] = 5; },
     "result 0 of a delegate differs in type from its region's output"},
    {"AliasExists", [](Module& m) { NodeAt(m, kDelegate).region->aliases[1] = 2; }, "result 1 aliases an operand that does not exist"},
    {"RegionItself",
     [](Module& m) { NodeAt(m, kDelegate).region->body->node(0).attrs[0] = Attr("two"); },
     "attribute 'alpha' of add cannot be \"two\""},
    {"InPlaceForm",
     [](Module& m) { NodeAt(m, kA).op = OpId::kCopy, NodeAt(m, kA).attrs = {Attr(false)}; },
     "an operator in place outside the planned form"},
};

class VerifierRules : public ::testing::TestWithParam<size_t> {};

TEST_P(VerifierRules, IsBroken) {
  const Rule& rule = kRules[GetParam()];
  Module module = Sound();
  ASSERT_TRUE(Verify(module).ok());
  rule.break_it(module);
  const Status status = Verify(module);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find(rule.message), std::string_view::npos) << status.ToString();
}

INSTANTIATE_TEST_SUITE_P(All, VerifierRules, ::testing::Range(size_t{0}, std::size(kRules)),
                         [](const auto& info) { return std::string(kRules[info.param].name); });

TEST(VerifierTest, AliasOfAnotherType) {
  const auto module = Parse(R"(module {
    graph @f(%x: f32[2]) {
      %y = delegate %x {backend="cpu", aliases=[0]} : f32[1] (%p: f32[2]) {
        %r = slice %p {end=1} : f32[1]
        return %r
      }
      return %y
    }
  })");
  ASSERT_FALSE(module.ok());
  EXPECT_EQ(module.status().message(), "result 0 aliases an operand of another type");
}

TEST(VerifierTest, SaysWhere) {
  Module module = Sound();
  module.locations.push_back({"model.py:7, in forward: x + w", "net.block", {}});
  NodeAt(module, kA).location = 0;
  NodeAt(module, kA).operands.pop_back();
  EXPECT_EQ(Verify(module).ToString(),
            "operator add takes 2 tensors, not 1\n  at %a = add\n  from model.py:7, in forward: x + w (module net.block)\n  while verifying graph @f");
}

TEST(VerifierTest, InPlaceOperatorsInThePlannedForm) {
  Module module = Sound();
  NodeAt(module, kA).op = OpId::kCopy;
  NodeAt(module, kA).attrs = {Attr(false)};
  module.form = Form::kPlanned;
  EXPECT_TRUE(Verify(module).ok()) << Verify(module).ToString();
}

TEST(StateSetsTest, WritesStayAndReadsMayGo) {
  const StateSets before = CollectStates(Sound());
  EXPECT_EQ(before.read, (std::set<std::string>{"f.s"}));
  EXPECT_EQ(before.written, (std::set<std::string>{"f.s"}));
  EXPECT_TRUE(CheckStates(before, before).ok());
  EXPECT_TRUE(CheckStates(before, {{}, {"f.s"}}).ok());
  EXPECT_EQ(CheckStates(before, {{"f.s"}, {}}).message(), "the write of state 'f.s' was lost");
  EXPECT_EQ(CheckStates(before, {{"f.s"}, {"f.s", "f.t"}}).message(), "a write of state 'f.t' appeared");
  EXPECT_EQ(CheckStates(before, {{"f.s", "g.s"}, {"f.s"}}).message(), "a read of state 'g.s' appeared");
}

}  // namespace
}  // namespace dovetail
