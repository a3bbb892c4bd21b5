#include "quant/calibration.h"

#include "kernels/kernels.h"
#include "quant/static_samples.h"

namespace dovetail {
namespace {

using namespace samples;

constexpr char kScaled[] = R"(module {
  symbol s0 = 1..9
  constant @two : f32[] = [2.0]
  graph @f(%x: f32[s0,4], %y: f32[s0,4]) {
    %two = const @two : f32[]
    %z = mul %x, %two : f32[s0,4]
    %w = add %z, %y : f32[s0,4]
    return %w
  }
})";

WatchedValues All(const Module& m) {
  WatchedValues watched;
  for (const auto& g : m.graphs) {
    watched.emplace_back();
    for (ValueId v = 0; v < g->num_values(); ++v)
      if (g->type(v).dtype == DType::kF32) watched.back().insert(v);
  }
  return watched;
}

TEST(ListCalls, FoldersAreSortedAndKeepTheirPlace) {
  const TempFolder folder, other;
  const OwnedTensor t = Floats({Dim(1)}, {1});
  for (const char* name : {"b.npz", "a.npz", "c.npz"}) folder.Write(name, {{"x", t}});
  const std::string first = other.Write("z.npz", {{"x", t}});
  std::ofstream(folder.path() + "/notes.txt") << "no call";
  const std::string paths[] = {first, folder.path()};
  auto files = ListCalls(paths);
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  EXPECT_EQ(*files, (std::vector<std::string>{first, folder.path() + "/a.npz", folder.path() + "/b.npz", folder.path() + "/c.npz"}));
  const std::string missing[] = {folder.path() + "/none.npz"};
  EXPECT_NE(ListCalls(missing).status().ToString().find("none.npz"), std::string::npos);
  const TempFolder empty;
  const std::string nothing[] = {empty.path()};
  EXPECT_NE(ListCalls(nothing).status().ToString().find("has no .npz"), std::string::npos);
}

TEST(LoadCall, MatchesByNameAndByPositionAndNamesTheInputAtFault) {
  const TempFolder folder;
  const Module m = Parsed(kScaled);
  const OwnedTensor a = Floats({Dim(1), Dim(4)}, {1, 2, 3, 4}), b = Floats({Dim(1), Dim(4)}, {5, 6, 7, 8}), narrow = Floats({Dim(1), Dim(3)}, {1, 2, 3});
  for (const auto& names : {std::pair("x", "y"), std::pair("input_0", "input_1"), std::pair("input_0", "y")}) {
    auto call = LoadCall(m, folder.Write("a.npz", {{names.second, b}, {names.first, a}}));
    ASSERT_TRUE(call.ok()) << call.status().ToString();
    EXPECT_EQ(Values(call->inputs[0]), Values(a));
    EXPECT_EQ(Values(call->inputs[1]), Values(b));
  }
  const std::string missing = LoadCall(m, folder.Write("b.npz", {{"x", a}})).status().ToString();
  EXPECT_NE(missing.find("b.npz' has no array 'y'"), std::string::npos) << missing;
  const std::string shape = LoadCall(m, folder.Write("c.npz", {{"x", a}, {"y", narrow}})).status().ToString();
  EXPECT_NE(shape.find("input 'y' has size 3 in dimension 1"), std::string::npos) << shape;
  EXPECT_NE(shape.find("c.npz"), std::string::npos) << shape;
}

TEST(LoadCall, TheInputsDecideTheMethod) {
  const TempFolder folder;
  const Module m = Parsed(R"(module {
  graph @first(%x: f32[2]) {
    %y = relu %x : f32[2]
    return %y
  }
  graph @wide(%x: f32[3]) {
    %y = relu %x : f32[3]
    return %y
  }
  graph @other(%a: f32[2]) {
    %y = relu %a : f32[2]
    return %y
  }
})");
  const OwnedTensor two = Floats({Dim(2)}, {1, 2}), three = Floats({Dim(3)}, {1, 2, 3});
  EXPECT_EQ(LoadCall(m, folder.Write("a.npz", {{"x", two}}))->graph, 0u);
  EXPECT_EQ(LoadCall(m, folder.Write("b.npz", {{"x", three}}))->graph, 1u);
  EXPECT_EQ(LoadCall(m, folder.Write("c.npz", {{"a", two}}))->graph, 2u);
  EXPECT_EQ(LoadCall(m, folder.Write("d.npz", {{"input_0", two}}))->graph, 0u);
}

TEST(ObserveCalls, ShardsMergeToTheWhole) {
  const TempFolder folder;
  const Module m = Parsed(kScaled);
  std::vector<std::string> files;
  for (unsigned i = 0; i < 7; ++i)
    files.push_back(folder.Write(StrCat(i, ".npz"), {{"x", Floats({Dim(int64_t{i} + 1), Dim(4)}, Normal(4 * (i + 1), i, static_cast<float>(1 << i)))},
                                                     {"y", Floats({Dim(int64_t{i} + 1), Dim(4)}, Normal(4 * (i + 1), i + 100))}}));
  StateStore states;
  ObservedValues whole, merged;
  size_t reports = 0;
  ASSERT_TRUE(ObserveCalls(m, files, 0, All(m), states, whole, [&](std::string_view, size_t done, size_t total) {
                EXPECT_EQ(done, reports++);
                EXPECT_EQ(total, 7u);
              }).ok());
  EXPECT_EQ(reports, 8u);
  for (size_t begin : {4u, 0u, 2u}) {  // in another order
    const size_t end = begin == 4 ? 7 : begin + 2;
    ObservedValues shard;
    ASSERT_TRUE(ObserveCalls(m, std::span(files).subspan(begin, end - begin), begin, All(m), states, shard).ok());
    MergeObserved(merged, shard);
  }
  ASSERT_EQ(merged[0].size(), whole[0].size());
  EXPECT_EQ(whole[0].size(), 5u);  // inputs, constant, product and sum
  for (const auto& [v, o] : whole[0]) {
    EXPECT_EQ(merged[0].at(v).FullRange(), o.FullRange());
    EXPECT_EQ(ParamsOf(merged[0].at(v).MseRange()), ParamsOf(o.MseRange()));
    EXPECT_EQ(merged[0].at(v).finite(), o.finite());
  }
}

// Each call sees what earlier ones wrote; the module's own state stays.
TEST(ObserveCalls, CallsAreASequenceOnACopyOfTheStates) {
  const TempFolder folder;
  const Module m = Parsed(R"(module {
  state @sum : f32[2] = [1.0,-1.0]
  graph @f(%x: f32[2]) {
    %old = state.read @sum : f32[2]
    %new = add %old, %x : f32[2]
    state.write @sum, %new
    return %new
  }
})");
  std::vector<std::string> files;
  for (int i = 0; i < 3; ++i) files.push_back(folder.Write(StrCat(i, ".npz"), {{"x", Floats({Dim(2)}, {10, -20})}}));
  auto states = InitStates(m);
  ASSERT_TRUE(states.ok());
  ObservedValues observed;
  ASSERT_TRUE(ObserveCalls(m, files, 0, All(m), *states, observed).ok());
  EXPECT_EQ(observed[0].at(FindValue(*m.graphs[0], "new")).FullRange(), (ValueRange{-61, 31}));
  EXPECT_EQ(observed[0].at(FindValue(*m.graphs[0], "old")).FullRange(), (ValueRange{-41, 21}));
  auto again = InitStates(m);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(Values((*again)[0]), (std::vector<float>{1, -1}));
}

// Few rows over many keys: the kernel of attention works in memory of its own.
TEST(Interpret, KernelsGetTheirScratch) {
  const Module m = Parsed(R"(module {
  graph @f(%q: f32[1,2,1,16], %k: f32[1,2,700,16], %v: f32[1,2,700,16]) {
    %y = attention %q, %k, %v, _, _ : f32[1,2,1,16]
    return %y
  }
})");
  ASSERT_NE(FindScratch(OpId::kAttention), nullptr);
  const Shape keys = {Dim(1), Dim(2), Dim(700), Dim(16)};
  const std::vector<OwnedTensor> inputs = {Floats({Dim(1), Dim(2), Dim(1), Dim(16)}, Normal(32, 1)), Floats(keys, Normal(22400, 2)),
                                           Floats(keys, Normal(22400, 3))};
  StateStore states;
  auto want = Interpret(m, *m.graphs[0], inputs, states), got = Interpret(m, *m.graphs[0], inputs, states, {nullptr, FindKernel, FindScratch, nullptr});
  ASSERT_TRUE(want.ok() && got.ok()) << want.status().ToString() << got.status().ToString();
  const std::vector<float> a = Values((*want)[0]), b = Values((*got)[0]);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
}

}  // namespace
}  // namespace dovetail
