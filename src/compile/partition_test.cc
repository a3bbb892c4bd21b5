#include "compile/partition.h"

#include <gtest/gtest.h>

#include <map>

#include "compile/program_samples.h"
#include "ir/text.h"
#include "ir/verifier.h"

namespace dovetail {
namespace {

using samples::Floats;
using samples::ToVector;

// Takes everything but sin, cos and what moves by index.
Status CheckMost(const Module&, const Graph&, const Node& n) {
  if (n.op == OpId::kSin || n.op == OpId::kCos || n.op == OpId::kIndexPut || n.op == OpId::kSlice) return Unsupported("no ", GetOp(n.op).name);
  return OkStatus();
}
// Takes cos, and neg when it is asked first.
Status CheckFew(const Module&, const Graph&, const Node& n) { return n.op == OpId::kCos || n.op == OpId::kNeg ? OkStatus() : Unsupported("only cos and neg"); }
bool Always(const Module&, const Graph&, std::span<const NodeId>) { return true; }
bool FromTwo(const Module&, const Graph&, std::span<const NodeId> nodes) { return nodes.size() >= 2; }

bool IsNeg(const Graph&, const Node& n) { return n.op == OpId::kNeg; }

const Backend kMost = {"most", CheckMost, Always, nullptr};
const Backend kMostFromTwo = {"most", CheckMost, FromTwo, nullptr};
const Backend kNoBorderingNeg = {"most", CheckMost, Always, nullptr, nullptr, IsNeg};
const Backend kNoBorderingNegFromTwo = {"most", CheckMost, FromTwo, nullptr, nullptr, IsNeg};
const Backend kFew = {"few", CheckFew, FromTwo, nullptr};

struct Parts {
  Module module;
  PartitionReport report;
  std::vector<const Node*> delegates;
};

Parts Split(const std::string& text, std::initializer_list<const Backend*> backends) {
  auto module = Parse(text);
  EXPECT_TRUE(module.ok()) << module.status().ToString();
  Parts p{std::move(*module), {}, {}};
  const StateSets before = CollectStates(p.module);
  auto report = Partition(p.module, std::vector<const Backend*>(backends));
  EXPECT_TRUE(report.ok()) << report.status().ToString();
  p.report = std::move(*report);
  Status status = Verify(p.module);
  EXPECT_TRUE(status.ok()) << status.ToString();
  status = CheckStates(before, CollectStates(p.module));
  EXPECT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(p.module.form, Form::kPartitioned);
  for (NodeId id : p.module.graphs[0]->order)
    if (p.module.graphs[0]->node(id).op == OpId::kDelegate) p.delegates.push_back(&p.module.graphs[0]->node(id));
  EXPECT_EQ(p.delegates.size(), p.report.delegate_calls);
  return p;
}

size_t CountIn(const Node& delegate, OpId op) {
  size_t n = 0;
  for (NodeId id : delegate.region->body->order) n += delegate.region->body->node(id).op == op;
  return n;
}

TEST(Partition, LinearsThatShareAnInputStayTogether) {
  // Query, key and value; sin on the way of one of them does not part the others.
  const Parts p = Split(R"(module {
  constant @q : f32[4,4] = external
  constant @k : f32[4,4] = external
  constant @v : f32[4,4] = external
  graph @f(%x: f32[2,4]) {
    %q = const @q : f32[4,4]
    %k = const @k : f32[4,4]
    %v = const @v : f32[4,4]
    %n = relu %x : f32[2,4]
    %query = linear %n, %q, _ : f32[2,4]
    %turned = sin %query : f32[2,4]
    %key = linear %n, %k, _ : f32[2,4]
    %value = linear %n, %v, _ : f32[2,4]
    %s = add %turned, %key : f32[2,4]
    %t = add %s, %value : f32[2,4]
    return %t
  }
}
)", {&kMost});
  ASSERT_EQ(p.delegates.size(), 2u);
  EXPECT_EQ(CountIn(*p.delegates[0], OpId::kLinear), 3u);
  EXPECT_EQ(CountIn(*p.delegates[0], OpId::kConst), 3u);
  EXPECT_EQ(CountIn(*p.delegates[0], OpId::kRelu), 1u);
  EXPECT_EQ(CountIn(*p.delegates[1], OpId::kAdd), 2u);
  // One operand, though three linears read it; what leaves is listed once.
  EXPECT_EQ(p.delegates[0]->operands.size(), 1u);
  EXPECT_EQ(p.delegates[0]->results.size(), 3u);
  EXPECT_EQ(p.delegates[1]->operands.size(), 3u);
}

TEST(Partition, GateAndUpOfAnInputOfTheGraph) {
  const Parts p = Split(R"(module {
  constant @g : f32[4,4] = external
  constant @u : f32[4,4] = external
  graph @f(%x: f32[2,4]) {
    %g = const @g : f32[4,4]
    %u = const @u : f32[4,4]
    %gate = linear %x, %g, _ : f32[2,4]
    %up = linear %x, %u, _ : f32[2,4]
    return %gate, %up
  }
}
)", {&kMostFromTwo});
  ASSERT_EQ(p.delegates.size(), 1u);
  EXPECT_EQ(CountIn(*p.delegates[0], OpId::kLinear), 2u);
}

TEST(Partition, APathThatLeavesPartsARegion) {
  const Parts p = Split(R"(module {
  graph @f(%x: f32[4]) {
    %a = neg %x : f32[4]
    %out = sin %a : f32[4]
    %b = relu %a : f32[4]
    %c = add %b, %out : f32[4]
    return %c
  }
}
)", {&kMost});
  ASSERT_EQ(p.delegates.size(), 2u);
  EXPECT_EQ(CountIn(*p.delegates[0], OpId::kNeg) + CountIn(*p.delegates[0], OpId::kRelu), 2u);
  EXPECT_EQ(CountIn(*p.delegates[1], OpId::kAdd), 1u);
}

TEST(Partition, TheFirstBackendThatTakesANodeHasIt) {
  const std::string text = R"(module {
  graph @f(%x: f32[4]) {
    %a = neg %x : f32[4]
    %b = cos %a : f32[4]
    %c = relu %b : f32[4]
    return %c
  }
}
)";
  const Parts few = Split(text, {&kFew, &kMost});
  ASSERT_EQ(few.delegates.size(), 2u);
  EXPECT_EQ(few.delegates[0]->region->backend, "few");
  EXPECT_EQ(CountIn(*few.delegates[0], OpId::kNeg) + CountIn(*few.delegates[0], OpId::kCos), 2u);
  EXPECT_EQ(few.delegates[1]->region->backend, "most");
  EXPECT_EQ(few.report.nodes[2].reason, "few: only cos and neg");

  // neg goes to `most`, and a lone cos is not worth a call.
  const Parts most = Split(text, {&kMost, &kFew});
  ASSERT_EQ(most.delegates.size(), 2u);
  EXPECT_EQ(most.report.nodes[0].backend, "most");
  EXPECT_EQ(most.report.nodes[1].backend, "cpu");
  EXPECT_EQ(most.report.nodes[1].reason, "few: too little work around it for a delegate call of its own");
}

TEST(Partition, WhatIsNotWorthACallGoesBackInAsManyRoundsAsItTakes) {
  // %p is alone. Without it %m is done two changes of engine earlier than %n, which it shares %y with, so that both are alone.
  const Parts p = Split(R"(module {
  graph @f(%x: f32[4], %y: f32[4]) {
    %c = sin %x : f32[4]
    %p = relu %c : f32[4]
    %d = sin %p : f32[4]
    %m = add %d, %y : f32[4]
    %e = cos %x : f32[4]
    %r = relu %e : f32[4]
    %s = neg %r : f32[4]
    %t = sin %s : f32[4]
    %n = mul %t, %y : f32[4]
    return %m, %n
  }
}
)", {&kMostFromTwo});
  ASSERT_EQ(p.delegates.size(), 1u);
  EXPECT_EQ(CountIn(*p.delegates[0], OpId::kRelu) + CountIn(*p.delegates[0], OpId::kNeg), 2u);
}

TEST(Partition, WholeAndEmptyGraphs) {
  EXPECT_EQ(Split("module {\n  graph @f(%x: f32[4]) {\n    return %x\n  }\n}\n", {&kMost}).delegates.size(), 0u);
  const Parts all = Split("module {\n  graph @f(%x: f32[4]) {\n    %y = neg %x : f32[4]\n    return %y, %y, %x\n  }\n}\n", {&kMost});
  ASSERT_EQ(all.delegates.size(), 1u);
  EXPECT_EQ(all.module.graphs[0]->outputs.size(), 3u);
  EXPECT_EQ(Split("module {\n  graph @f(%x: f32[4]) {\n    %y = neg %x : f32[4]\n    return %y\n  }\n}\n", {}).delegates.size(), 0u);
}

// Where each named value is made: 0 outside, else the number of the region.
std::map<std::string, size_t> Places(const Graph& g) {
  std::map<std::string, size_t> place;
  size_t region = 0;
  for (NodeId id : g.order) {
    const Node& n = g.node(id);
    if (n.op == OpId::kDelegate) {
      ++region;
      const Graph& body = *n.region->body;
      for (NodeId inner : body.order)
        if (body.node(inner).op != OpId::kConst) place[body.value(body.node(inner).results[0]).name] = region;
    } else if (!n.results.empty()) {
      place[g.value(n.results[0]).name] = 0;
    }
  }
  return place;
}

TEST(Partition, WhatIsCheaperOutsideLeavesTheBorders) {
  const std::string text = R"(module {
  graph @f(%x: f32[4]) {
    %s = sin %x : f32[4]
    %leading = neg %s : f32[4]
    %leading_too = neg %leading : f32[4]
    %a = relu %leading_too : f32[4]
    %inside = neg %a : f32[4]
    %b = relu %inside : f32[4]
    %trailing = neg %b : f32[4]
    %trailing_too = neg %trailing : f32[4]
    %t = sin %trailing_too : f32[4]
    %used_twice = neg %b : f32[4]
    %c = add %b, %used_twice : f32[4]
    %returned = neg %c : f32[4]
    return %t, %used_twice, %returned
  }
}
)";
  const Parts p = Split(text, {&kNoBorderingNeg});
  ASSERT_EQ(p.delegates.size(), 1u);
  std::vector<std::string> inside;
  const Graph& body = *p.delegates[0]->region->body;
  for (NodeId id : body.order) inside.push_back(body.value(body.node(id).results[0]).name);
  EXPECT_EQ(inside, (std::vector<std::string>{"a", "inside", "b", "used_twice", "c"}));
  size_t explained = 0;
  for (const Placement& n : p.report.nodes) explained += n.backend == "cpu" && n.reason.find("at the border") != std::string::npos;
  EXPECT_EQ(explained, 5u);

  Module whole = Parse(text).value();
  const Backend* const backends[] = {&kNoBorderingNeg};
  EXPECT_EQ(Partition(whole, backends, false).value().delegate_calls, 1u);
  for (NodeId id : whole.graphs[0]->order) {
    const Node& n = whole.graphs[0]->node(id);
    EXPECT_NE(n.op, OpId::kNeg);
  }
}

TEST(Partition, ABorderThatAnotherRegionWaitsForStays) {
  // %n on the cpu would come between the two regions' engines, and the second region one change later.
  const Parts p = Split(R"(module {
  graph @f(%x: f32[4]) {
    %a = relu %x : f32[4]
    %n = neg %a : f32[4]
    %s = sin %x : f32[4]
    %b = add %n, %s : f32[4]
    return %b
  }
}
)", {&kNoBorderingNeg});
  ASSERT_EQ(p.delegates.size(), 2u);
  EXPECT_EQ(CountIn(*p.delegates[0], OpId::kNeg), 1u);
}

TEST(Partition, RandomProgramsKeepTheirMeaningAndSharedInputs) {
  size_t shared = 0, regions = 0;
  for (uint32_t seed = 0; seed < 1500; ++seed) {
    const size_t nodes = 4 + seed % 24;
    Module before = samples::RandomProgram(seed, nodes), after = samples::RandomProgram(seed, nodes);
    for (Module* m : {&before, &after})
      for (NodeId id : m->graphs[0]->order)
        for (ValueId v : m->graphs[0]->node(id).results) m->graphs[0]->value(v).name = StrCat("v", v);
    const Backend* orders[][2] = {{&kNoBorderingNeg, &kFew}, {&kFew, &kNoBorderingNegFromTwo}, {&kNoBorderingNegFromTwo, &kFew}};
    const StateSets sets = CollectStates(before);
    auto report = Partition(after, orders[seed % 3]);
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    // A region that is not convex needs one of its own results: no order would verify.
    Status valid = Verify(after);
    ASSERT_TRUE(valid.ok()) << "seed " << seed << "\n" << valid.ToString() << Print(before);
    Status kept = CheckStates(sets, CollectStates(after));
    ASSERT_TRUE(kept.ok()) << kept.ToString();
    regions += report->delegate_calls;
    Module whole = samples::RandomProgram(seed, nodes);
    EXPECT_LE(report->delegate_calls, Partition(whole, orders[seed % 3], false).value().delegate_calls) << "seed " << seed << "\n" << Print(before);

    StateStore states = InitStates(before).value(), states_after = InitStates(after).value();
    for (float call = 1; call < 3; ++call) {
      const std::vector<OwnedTensor> inputs = {Floats({call, 2, 3, -call}), Floats({0.5f, call, -1, 4})};
      auto want = Interpret(before, *before.graphs[0], inputs, states);
      auto got = Interpret(after, *after.graphs[0], inputs, states_after);
      ASSERT_TRUE(want.ok() && got.ok()) << got.status().ToString();
      const std::string what = StrCat("seed ", seed, "\n", Print(before), Print(after));
      for (size_t i = 0; i < want->size(); ++i) ASSERT_EQ(ToVector((*got)[i]), ToVector((*want)[i])) << what;
      for (size_t i = 0; i < states.size(); ++i) ASSERT_EQ(ToVector(states_after[i]), ToVector(states[i])) << what;
    }

    // Nodes of one backend with the same operands are never parted. With kNoBorderingNeg first, that is all binary ones.
    if (seed % 3 != 0) continue;
    const auto place = Places(*after.graphs[0]);
    std::map<std::vector<ValueId>, size_t> seen;
    const Graph& g = *before.graphs[0];
    for (NodeId id : g.order) {
      const Node& n = g.node(id);
      if (n.op != OpId::kMul && n.op != OpId::kMaximum) continue;
      const size_t region = place.at(g.value(n.results[0]).name);
      EXPECT_GT(region, 0u);
      auto [it, first] = seen.try_emplace(n.operands, region);
      shared += !first;
      EXPECT_EQ(it->second, region) << "seed " << seed << "\n" << Print(before) << Print(after);
    }
    if (HasFailure()) return;
  }
  EXPECT_GT(shared, 100u);
  EXPECT_GT(regions, 1500u);
}

}  // namespace
}  // namespace dovetail
