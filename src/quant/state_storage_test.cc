// Modules with int8 states against the same modules with float ones, in the interpreter: what is read is near, rows that are not written
// keep their bits, rows that are written hold what quantize_rows gives.
#include "quant/state_storage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ir/interpreter.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

constexpr int64_t kHeads = 2, kRows = 6, kWidth = 8;

OwnedTensor Tensor(std::vector<Dim> shape, const std::function<float(int64_t)>& element) {
  OwnedTensor t = OwnedTensor::Make(TensorType(DType::kF32, Shape(std::span<const Dim>(shape))));
  for (int64_t i = 0; i < t.view().numel(); ++i) t.view().as<float>()[i] = element(i);
  return t;
}
OwnedTensor Random(std::vector<Dim> shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  return Tensor(std::move(shape), [&](int64_t) { return normal(random); });
}
OwnedTensor Position(int64_t at) {
  OwnedTensor t = OwnedTensor::Make(TensorType(DType::kI64, {Dim(1)}));
  *t.view().as<int64_t>() = at;
  return t;
}

std::string Elements(int64_t n) {
  std::string text;
  for (int64_t i = 0; i < n; ++i) text += StrCat(i ? "," : "", std::to_string(static_cast<double>(i * 37 % 101 - 50) / 16));
  return text;
}

Module ParseCore(const std::string& text) {
  auto module = Parse(text);
  EXPECT_TRUE(module.ok()) << module.status().ToString() << text;
  if (!module.ok()) return {};
  return std::move(*module);
}

// With states as int8; the report in *report.
Module Int8(const std::string& text, QuantizeReport* report = nullptr) {
  Module module = ParseCore(text);
  QuantizeReport ignored;
  QuantizeOptions options;
  options.int8_states = true;
  Status status = dovetail::Quantize(module, options, report ? *report : ignored);
  EXPECT_TRUE(status.ok()) << status.ToString() << Print(module);
  return module;
}

size_t Count(const Graph& g, OpId op) {
  return static_cast<size_t>(std::count_if(g.order.begin(), g.order.end(), [&](NodeId id) { return g.node(id).op == op; }));
}

std::vector<float> ToVector(const OwnedTensor& t) { return {t.view().as<float>(), t.view().as<float>() + t.view().numel()}; }

void ExpectNear(const OwnedTensor& got, const OwnedTensor& want, float tolerance) {
  ASSERT_TRUE(got.type == want.type) << got.type.ToString() << " " << want.type.ToString();
  const std::vector<float> g = ToVector(got), w = ToVector(want);
  for (size_t i = 0; i < g.size(); ++i) ASSERT_NEAR(g[i], w[i], tolerance) << "element " << i;
}

// The bytes of row r of the state at `states[0]` and of its scale.
std::string Row(const StateStore& states, int64_t r) {
  const TensorView rows = states[0].view(), scale = states[1].view();
  const int64_t width = rows.sizes[rows.rank - 1u];
  std::string bytes(static_cast<size_t>(width) + sizeof(float), '\0');
  std::memcpy(bytes.data(), rows.as<int8_t>() + r * width, static_cast<size_t>(width));
  std::memcpy(bytes.data() + width, scale.as<float>() + r, sizeof(float));
  return bytes;
}
std::string RowOf(const float* x, int64_t width) {
  StateStore pair = {OwnedTensor::Make(TensorType(DType::kI8, {Dim(1), Dim(width)})), OwnedTensor::Make(TensorType(DType::kF32, {Dim(1), Dim(1)}))};
  const OwnedTensor row = Tensor({1, width}, [&](int64_t i) { return x[i]; });
  const TensorView in[] = {row.view()}, out[] = {pair[0].view(), pair[1].view()};
  EXPECT_TRUE(GetOp(OpId::kQuantizeRows).reference({in, {}, out, nullptr, {}}).ok());
  return Row(pair, 0);
}

// A cache @c : f32[2,6,8] that is not zero, %x to be written at %pos; `body` makes %u of them and writes it.
std::string Cache(const std::string& body) {
  return StrCat(R"(module {
  constant @rows : i64[6,1] = [0,1,2,3,4,5]
  constant @one : f32[] = [1.0]
  state @c : f32[2,6,8] = [)", Elements(kHeads * kRows * kWidth), R"(]
  graph @f(%x: f32[2,1,8], %pos: i64[1]) {
    %rows = const @rows : i64[6,1]
    %one = const @one : f32[]
    %r = state.read @c : f32[2,6,8]
)", body, R"(    state.write @c, %u
    %y = mul %u, %one : f32[2,6,8]
    return %y
  }
}
)");
}

struct WriteKind {
  const char* name;
  const char* body;
  bool shifts = false;  // every row moves up by one and %x is the last
  bool in_rows = true;  // works on rows and scales; else on floats
};
const WriteKind kWriteKinds[] = {
    {"index_put", "    %u = index_put %r, _, %pos, %x : f32[2,6,8]\n"},
    {"values that broadcast", "    %0 = view %x {size=[2,8]} : f32[2,8]\n"
                              "    %1 = view %0 {size=[2,1,8]} : f32[2,1,8]\n    %u = index_put %r, _, %pos, %1 : f32[2,6,8]\n"},
    {"chained", "    %0 = index_put %r, _, %pos, %one : f32[2,6,8]\n    %u = index_put %0, _, %pos, %x : f32[2,6,8]\n"},
    {"where", "    %m = eq %rows, %pos : bool[6,1]\n    %u = where %m, %x, %r : f32[2,6,8]\n"},
    {"where of a whole mask", "    %0 = eq %rows, %pos : bool[6,1]\n    %m = expand %0 {size=[2,6,8]} : bool[2,6,8]\n    %u = where %m, %x, %r : f32[2,6,8]\n"},
    {"moved about", "    %0 = permute %r {dims=[1,0,2]} : f32[6,2,8]\n    %1 = view %x {size=[1,2,8]} : f32[1,2,8]\n"
                    "    %2 = index_put %0, %pos, %1 : f32[6,2,8]\n    %u = permute %2 {dims=[1,0,2]} : f32[2,6,8]\n"},
    {"sums with a mask", "    %0 = eq %rows, %pos : bool[6,1]\n    %m = to_dtype %0 {out_dtype=f32} : f32[6,1]\n    %n = sub %one, %m : f32[6,1]\n"
                         "    %a = mul %r, %n : f32[2,6,8]\n    %b = mul %x, %m : f32[2,6,8]\n    %u = add %a, %b : f32[2,6,8]\n", false, false},
    {"cat and slice", "    %0 = cat %r, %x {dim=1} : f32[2,7,8]\n    %u = slice %0 {dim=1, start=1, end=7} : f32[2,6,8]\n", true},
    {"slice and cat", "    %0 = slice %r {dim=-2, start=1, end=6} : f32[2,5,8]\n    %u = cat %0, %x {dim=-2} : f32[2,6,8]\n", true},
};

TEST(StateStorage, EveryKindOfWriteKeepsTheOtherRows) {
  for (const WriteKind& kind : kWriteKinds) {
    SCOPED_TRACE(kind.name);
    QuantizeReport report;
    const Module floats = ParseCore(Cache(kind.body)), module = Int8(Cache(kind.body), &report);
    ASSERT_EQ(report.int8_states, std::vector<std::string>{"c"});
    ASSERT_EQ(module.states.size(), 2u);
    EXPECT_EQ(module.states[1].name, "c.scale");
    EXPECT_EQ(Count(*module.graphs[0], OpId::kStateWrite), 2u);
    if (kind.in_rows) {
      EXPECT_EQ(Count(*module.graphs[0], OpId::kDequantizeRows), 1u) << Print(module);
    }
    StateStore want = InitStates(floats).value(), got = InitStates(module).value();
    for (int64_t r = 0; r < kHeads * kRows; ++r) EXPECT_EQ(Row(got, r), RowOf(ToVector(want[0]).data() + r * kWidth, kWidth)) << "initial row " << r;
    for (uint32_t call = 0; call < 40; ++call) {
      const int64_t position = call < 3 ? call * 2 : 4;
      const std::vector<OwnedTensor> inputs = {Random({kHeads, 1, kWidth}, call), Position(position)};
      std::vector<std::string> before;
      for (int64_t r = 0; r < kHeads * kRows; ++r) before.push_back(Row(got, r));
      auto expected = Interpret(floats, *floats.graphs[0], inputs, want);
      auto result = Interpret(module, *module.graphs[0], inputs, got);
      ASSERT_TRUE(expected.ok()) << expected.status().ToString();
      ASSERT_TRUE(result.ok()) << result.status().ToString();
      ExpectNear((*result)[0], (*expected)[0], 0.03f);
      for (int64_t r = 0; r < kHeads * kRows; ++r) {
        const int64_t head = r / kRows, row = r % kRows;
        const std::string written = RowOf(inputs[0].view().as<float>() + head * kWidth, kWidth);
        const bool replaced = row == (kind.shifts ? kRows - 1 : position);
        EXPECT_EQ(Row(got, r), replaced ? written : before[static_cast<size_t>(r + kind.shifts)]) << "row " << r << " of call " << call;
      }
      if (HasFailure()) return;
    }
  }
}

// What is read after a write is what the state then holds, and nothing is quantized that no state holds.
TEST(StateStorage, OnlyStatesAreQuantized) {
  const Module m = Int8(Cache(R"(    %u = index_put %r, _, %pos, %x : f32[2,6,8]
    %other = index_put %r, _, %pos, %one : f32[2,6,8]
    %longer = cat %r, %x {dim=1} : f32[2,7,8]
    %a = relu %other : f32[2,6,8]
    %b = relu %longer : f32[2,7,8]
)"));
  const Graph& g = *m.graphs[0];
  EXPECT_EQ(Count(g, OpId::kQuantizeRows), 1u) << Print(m);
}

TEST(StateStorage, ReadsAndWritesKeepTheirOrder) {
  const std::string text = StrCat(R"(module {
  state @c : f32[4,8] = [)", Elements(32), R"(]
  state @d : f32[4,8] = zeros
  graph @write(%x: f32[1,8], %pos: i64[1]) {
    %r = state.read @c : f32[4,8]
    %old = relu %r : f32[4,8]
    %u = index_put %r, %pos, %x : f32[4,8]
    state.write @c, %u
    %r1 = state.read @c : f32[4,8]
    %n = neg %x : f32[1,8]
    %u1 = slice_scatter %r1, %n {dim=0, start=3, end=4} : f32[4,8]
    %s = state.read @d : f32[4,8]
    state.write @c, %u1
    state.write @d, %r
    %new = relu %u1 : f32[4,8]
    %z = relu %s : f32[4,8]
    return %old, %new, %z
  }
  graph @read(%x: f32[4,8]) {
    %r = state.read @c : f32[4,8]
    %s = state.read @d : f32[4,8]
    %a = sub %r, %s : f32[4,8]
    %b = add %a, %x : f32[4,8]
    return %b
  }
}
)");
  QuantizeReport report;
  const Module floats = ParseCore(text), module = Int8(text, &report);
  EXPECT_EQ(report.int8_states, (std::vector<std::string>{"c", "d"}));
  EXPECT_EQ(report.warnings, std::vector<std::string>());
  const StateSets sets = CollectStates(module);
  EXPECT_EQ(sets.written, (std::set<std::string>{"write.c", "write.c.scale", "write.d", "write.d.scale"}));
  EXPECT_EQ(sets.read.size(), 8u);
  StateStore want = InitStates(floats).value(), got = InitStates(module).value();
  for (uint32_t call = 0; call < 6; ++call) {
    const std::vector<OwnedTensor> inputs = {Random({1, kWidth}, call), Position(call % 4)}, more = {Random({4, kWidth}, call + 100)};
    for (size_t method : {0, 1}) {
      const StateStore before = got;
      auto expected = Interpret(floats, *floats.graphs[method], method ? more : inputs, want);
      auto result = Interpret(module, *module.graphs[method], method ? more : inputs, got);
      ASSERT_TRUE(expected.ok() && result.ok()) << expected.status().ToString() << result.status().ToString();
      for (size_t i = 0; i < expected->size(); ++i) ExpectNear((*result)[i], (*expected)[i], 0.05f);
      // @d holds what @c held, to the bit.
      if (method == 0) {
        for (size_t i : {0, 1}) EXPECT_EQ(got[2 + i].storage, before[i].storage);
      }
    }
  }
}

// Updates of parts of rows, and sums into them, quantize the rows they touch again; the others keep their bits.
TEST(StateStorage, PartsOfRows) {
  for (const char* body : {"    %u = index_put %r, _, _, %pos, %one : f32[2,6,8]\n",
                           "    %u = index_put %r, _, %pos, %x {accumulate=true} : f32[2,6,8]\n"}) {
    const Module floats = ParseCore(Cache(body)), module = Int8(Cache(body));
    StateStore want = InitStates(floats).value(), got = InitStates(module).value();
    const std::vector<OwnedTensor> inputs = {Random({kHeads, 1, kWidth}, 1), Position(2)};
    const std::string untouched = Row(got, 5);
    auto expected = Interpret(floats, *floats.graphs[0], inputs, want);
    auto result = Interpret(module, *module.graphs[0], inputs, got);
    ASSERT_TRUE(expected.ok() && result.ok()) << expected.status().ToString() << result.status().ToString();
    ExpectNear((*result)[0], (*expected)[0], 0.06f);
    if (std::strstr(body, "accumulate")) {
      EXPECT_EQ(Row(got, 5), untouched);
    }
  }
}

TEST(StateStorage, WhatCannotBeStaysAndIsNamed) {
  QuantizeReport report;
  const Module m = Int8(R"(module {
  state @count : i64[] = [3]
  state @mean : f32[] = [0.5]
  state @narrow : f32[4,1] = zeros
  state @fixed : f32[2,8] = zeros
  state @sink : f32[2,8] = zeros
  state @shown : f32[2,8] = zeros
  state @twin : f32[2,8] = zeros
  state @twin.scale : f32[2,1] = zeros
  state @hidden : f32[2,8] = zeros
  graph @f(%x: f32[2,8], %y: f32[4,1], %n: i64[], %s: f32[], %p: i64[1]) {
    %count = state.read @count : i64[]
    %c = add %count, %n : i64[]
    state.write @count, %c
    %mean = state.read @mean : f32[]
    %m = add %mean, %s : f32[]
    state.write @mean, %m
    %narrow = state.read @narrow : f32[4,1]
    %w = add %narrow, %y : f32[4,1]
    state.write @narrow, %w
    %fixed = state.read @fixed : f32[2,8]
    %z = add %fixed, %x : f32[2,8]
    state.write @sink, %z
    %shown = state.read @shown : f32[2,8]
    %v = index_put %shown, %p, %s : f32[2,8]
    state.write @shown, %v
    %twin = state.read @twin : f32[2,8]
    %t = add %twin, %x : f32[2,8]
    state.write @twin, %t
    %hidden = state.read @hidden : f32[2,8]
    %h = add %hidden, %x : f32[2,8]
    state.write @hidden, %h
    %scale = state.read @twin.scale : f32[2,1]
    return %v, %h, %scale
  }
}
)", &report);
  EXPECT_EQ(report.int8_states, std::vector<std::string>{"hidden"});
  EXPECT_EQ(report.warnings, (std::vector<std::string>{
                                 "state 'count' stays as it is: it is i64, and only f32 is stored as int8",
                                 "state 'mean' stays float: it is one number",
                                 "state 'narrow' stays float: its rows of 1 are too short for a scale each",
                                 "state 'fixed' stays float: the model never writes it",
                                 "state 'sink' stays float: the model never reads it",
                                 "state 'shown' stays float: the model returns its contents as they are",
                                 "state 'twin' stays float: there is a state 'twin.scale' already",
                                 "state 'twin.scale' stays float: its rows of 1 are too short for a scale each",
                                 "state 'hidden' is computed anew by each call, not written by rows: as int8 it keeps no small change of a large value; "
                                 "--keep-float 'hidden' leaves it in float",
                             }));
  EXPECT_EQ(m.states.size(), 10u);
  // %h is computed, not moved: it is returned as it was.
  EXPECT_EQ(Count(*m.graphs[0], OpId::kQuantizeRows), 1u);
}

TEST(StateStorage, AttentionTakesTheCacheAsItIs) {
  Module m = Int8(R"(module {
  symbol s0 = 1..3
  state @k : f32[1,2,16,8] = zeros
  state @v : f32[1,16,2,8] = zeros
  graph @f(%q: f32[1,4,s0,8], %x: f32[1,2,s0,8], %z: f32[1,s0,2,8], %pos: i64[s0]) {
    %k = state.read @k : f32[1,2,16,8]
    %k1 = index_put %k, _, _, %pos, %x : f32[1,2,16,8]
    state.write @k, %k1
    %v = state.read @v : f32[1,16,2,8]
    %v1 = index_put %v, _, %pos, %z : f32[1,16,2,8]
    state.write @v, %v1
    %k2 = slice %k1 {dim=2, start=0, end=12} : f32[1,2,12,8]
    %v2 = slice %v1 {dim=1, start=0, end=12} : f32[1,12,2,8]
    %v3 = permute %v2 {dims=[0,2,1,3]} : f32[1,2,12,8]
    %k3 = view %k2 {size=[1,2,1,12,8]} : f32[1,2,1,12,8]
    %k4 = expand %k3 {size=[1,2,2,12,8]} : f32[1,2,2,12,8]
    %k5 = view %k4 {size=[1,4,12,8]} : f32[1,4,12,8]
    %v4 = view %v3 {size=[1,2,1,12,8]} : f32[1,2,1,12,8]
    %v5 = expand %v4 {size=[1,2,2,12,8]} : f32[1,2,2,12,8]
    %v6 = view %v5 {size=[1,4,12,8]} : f32[1,4,12,8]
    %y = attention %q, %k5, %v6, _, %pos : f32[1,4,s0,8]
    return %y
  }
}
)");
  Status fused = RunPass(*FindPass("fuse_quantized_attention"), m);
  ASSERT_TRUE(fused.ok()) << fused.ToString();
  EXPECT_EQ(Count(*m.graphs[0], OpId::kQuantizedAttention), 1u) << Print(m);
  EXPECT_EQ(Count(*m.graphs[0], OpId::kAttention), 0u);
  EXPECT_EQ(Count(*m.graphs[0], OpId::kDequantizeRows), 0u);
}

// On this rests that rows which arithmetic leaves alone never change.
TEST(StateStorage, RowsQuantizedAgainAreTheSame) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> exponent(-120, 120), uniform(-1, 1);
  for (int i = 0; i < 20000; ++i) {
    float x[kWidth], again[kWidth];
    const float size = std::exp2(exponent(random));
    for (float& e : x) e = uniform(random) * size;
    const std::string row = RowOf(x, kWidth);
    float scale;
    std::memcpy(&scale, row.data() + kWidth, sizeof scale);
    ASSERT_EQ(static_cast<double>(127 * scale), 127 * static_cast<double>(scale)) << "row " << i;
    for (int64_t k = 0; k < kWidth; ++k) again[k] = static_cast<float>(static_cast<int8_t>(row[static_cast<size_t>(k)])) * scale;
    ASSERT_EQ(RowOf(again, kWidth), row) << "row " << i;
  }
}

}  // namespace
}  // namespace dovetail
