// The rewriting driver.
#include "ir/rewrite.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ir/verifier.h"

namespace dovetail {
namespace {

Module Parsed(std::string_view text) {
  auto module = Parse(text);
  EXPECT_TRUE(module.ok()) << module.status().ToString();
  return module.ok() ? std::move(*module) : Module();
}

// The nodes of the first graph as they are printed, one per line.
std::string BodyOf(const Module& module) {
  const std::string text = Print(module);
  const size_t begin = text.find(") {\n") + 4, end = text.find("\n  }\n");
  std::string body;
  for (size_t at = begin; at < end;) {
    const size_t line_end = text.find('\n', at);
    body += text.substr(text.find_first_not_of(' ', at), line_end - text.find_first_not_of(' ', at)) + "\n";
    at = line_end + 1;
  }
  return body;
}

// -(-x) is x.
Result<Replacement> FoldDoubleNegation(RewriteContext& c, NodeId id) {
  const Node& n = c.graph.node(id);
  if (n.op != OpId::kNeg) return Replacement();
  const Node* inner = c.graph.producer_if(n.operands[0], OpId::kNeg);
  return inner ? Replacement({{inner->operands[0]}}) : Replacement();
}

TEST(RewriteTest, ReplacesUsesAndDropsTheDead) {
  Module module = Parsed(R"(module { graph @f(%x: f32[2]) {
    %a = neg %x : f32[2]
    %b = neg %a : f32[2]
    %c = exp %b : f32[2]
    %d = add %b, %c : f32[2]
    return %b, %d
  } })");
  auto changed = RewriteModule(module, FoldDoubleNegation);
  ASSERT_TRUE(changed.ok() && *changed);
  EXPECT_EQ(BodyOf(module), "%c = exp %x : f32[2]\n%d = add %x, %c : f32[2]\nreturn %x, %d\n");
  EXPECT_TRUE(Verify(module).ok());
  changed = RewriteModule(module, FoldDoubleNegation);
  EXPECT_TRUE(changed.ok() && !*changed);
}

TEST(RewriteTest, SeesEarlierReplacements) {
  // Four negations in a row: the third sees %x in place of %b.
  Module module = Parsed(R"(module { graph @f(%x: f32[2]) {
    %a = neg %x : f32[2]
    %b = neg %a : f32[2]
    %c = neg %b : f32[2]
    %d = neg %c : f32[2]
    return %d
  } })");
  ASSERT_TRUE(RewriteModule(module, FoldDoubleNegation).ok());
  EXPECT_EQ(BodyOf(module), "return %x\n");
}

TEST(RewriteTest, NewNodesStandBeforeAndTakeNameAndLocation) {
  Module module = Parsed(R"(module { graph @f(%x: f32[2], %y: f32[2]) {
    %a = exp %y : f32[2]
    %s = sub %x, %a : f32[2]
    return %s
  } })");
  module.locations.push_back({"model.py:3", "", {}});
  module.graphs[0]->node(module.graphs[0]->order[1]).location = 0;
  auto changed = RewriteModule(module, [](RewriteContext& c, NodeId id) -> Result<Replacement> {
    if (c.graph.node(id).op != OpId::kSub) return Replacement();
    const ValueId x = c.graph.node(id).operands[0], y = c.graph.node(id).operands[1];
    DT_ASSIGN_OR_RETURN(const ValueId negative, c.builder.Emit(OpId::kNeg, {y}));
    DT_ASSIGN_OR_RETURN(const ValueId sum, c.builder.Emit(OpId::kAdd, {x, negative}));
    return Replacement({{sum}});
  });
  ASSERT_TRUE(changed.ok() && *changed);
  EXPECT_EQ(BodyOf(module), "%a = exp %y : f32[2]\n%0 = neg %a : f32[2]\n%s = add %x, %0 : f32[2]\nreturn %s\n");
  const Graph& graph = *module.graphs[0];
  EXPECT_EQ(DescribeSource(module, graph.node(graph.order[1])), "model.py:3");
  EXPECT_EQ(DescribeSource(module, graph.node(graph.order[2])), "model.py:3");
}

TEST(RewriteTest, CountsUses) {
  Module module = Parsed(R"(module { graph @f(%x: f32[2]) {
    %a = neg %x : f32[2]
    %b = add %a, %a : f32[2]
    return %a, %b
  } })");
  std::vector<uint32_t> counts;
  ASSERT_TRUE(RewriteModule(module, [&](RewriteContext& c, NodeId id) -> Result<Replacement> {
                counts.push_back(c.use_count(c.graph.node(id).results[0]));
                return Replacement();
              }).ok());
  EXPECT_EQ(counts, (std::vector<uint32_t>{3, 1}));
}

TEST(RewriteTest, KeepsWritesOfStates) {
  Module module = Parsed(R"(module {
    state @s : f32[2] = zeros
    graph @f(%x: f32[2]) {
      %a = neg %x : f32[2]
      %b = neg %a : f32[2]
      state.write @s, %b
      %dead = state.read @s : f32[2]
      return %x
    }
  })");
  const StateSets before = CollectStates(module);
  ASSERT_TRUE(RewriteModule(module, FoldDoubleNegation).ok());
  EXPECT_EQ(BodyOf(module), "state.write @s, %x\nreturn %x\n");
  EXPECT_TRUE(CheckStates(before, CollectStates(module)).ok());
}

TEST(RewriteTest, AFailingRuleSaysWhereAndLeavesAGraph) {
  Module module = Parsed(R"(module { graph @f(%x: f32[2]) {
    %a = neg %x : f32[2]
    %b = exp %a : f32[2]
    return %b
  } })");
  const std::string before = BodyOf(module);
  auto changed = RewriteModule(module, [](RewriteContext& c, NodeId id) -> Result<Replacement> {
    if (c.graph.node(id).op == OpId::kExp) return Unsupported("no exp today");
    return Replacement();
  });
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.status().ToString(), "no exp today\n  at %b = exp");
  EXPECT_EQ(BodyOf(module), before);
}

TEST(RewriteTest, EveryGraphOfTheModule) {
  Module module = Parsed(R"(module {
    graph @f(%x: f32[2]) { return %x }
    graph @g(%x: f32[2]) { %a = neg %x : f32[2] %b = neg %a : f32[2] return %b }
  })");
  auto changed = RewriteModule(module, FoldDoubleNegation);
  ASSERT_TRUE(changed.ok() && *changed);
  EXPECT_EQ(module.graphs[1]->outputs, module.graphs[1]->inputs);
}

}  // namespace
}  // namespace dovetail
