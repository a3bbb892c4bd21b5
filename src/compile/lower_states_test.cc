// Planned graphs run with states as memory (program_samples.h) give what the interpreter gives for the graph before.
#include "compile/lower_states.h"

#include <gtest/gtest.h>

#include <set>

#include "compile/program_samples.h"
#include "ir/text.h"
#include "ir/verifier.h"

namespace dovetail {
namespace {

using samples::Floats;
using samples::StateMachine;
using samples::ToVector;

size_t Count(const Module& m, OpId op) {
  size_t n = 0;
  for (NodeId id : m.graphs[0]->order) n += m.graphs[0]->node(id).op == op;
  return n;
}

// Three calls with different inputs: outputs and states.
void ExpectSameMeaning(const Module& before, const Module& planned, const std::string& what) {
  Status valid = Verify(planned);
  ASSERT_TRUE(valid.ok()) << what << valid.ToString();
  StateStore states = InitStates(before).value();
  StateMachine machine(planned);
  for (float call = 1; call < 4; ++call) {
    std::vector<OwnedTensor> inputs;
    for (size_t i = 0; i < before.graphs[0]->inputs.size(); ++i) inputs.push_back(Floats({call, call * 2 + static_cast<float>(i), -call, call + 0.5f}));
    auto want = Interpret(before, *before.graphs[0], inputs, states);
    ASSERT_TRUE(want.ok()) << want.status().ToString();
    auto got = machine.Call(inputs);
    ASSERT_TRUE(got.ok()) << got.status().ToString();
    ASSERT_EQ(got->size(), want->size());
    for (size_t i = 0; i < want->size(); ++i) EXPECT_EQ(ToVector((*got)[i]), ToVector((*want)[i])) << what << "output " << i << " of call " << call;
    for (size_t i = 0; i < states.size(); ++i) EXPECT_EQ(ToVector(machine.states()[i]), ToVector(states[i])) << what << "state " << i << " after call " << call;
  }
}

// The planned module of a body over states @a, @b : f32[4], inputs %x, %y : f32[4] and the constants %i = [1,3], %c : f32[4].
Module Lower(const std::string& body) {
  const std::string text = StrCat(R"(module {
  constant @i : i64[2] = [1,3]
  constant @c : f32[4] = [5.0,6.0,7.0,8.0]
  state @a : f32[4] = [10.0,11.0,12.0,13.0]
  state @b : f32[4] = [20.0,21.0,22.0,23.0]
  graph @f(%x: f32[4], %y: f32[4]) {
    %i = const @i : i64[2]
    %c = const @c : f32[4]
    %half = slice %x {end=2} : f32[2]
)", body, "  }\n}\n");
  auto before = Parse(text);
  auto planned = Parse(text);
  EXPECT_TRUE(before.ok()) << before.status().ToString();
  if (!before.ok()) return {};
  const StateSets sets = CollectStates(*before);
  Status lowered = LowerStates(*planned);
  EXPECT_TRUE(lowered.ok()) << lowered.ToString();
  Status kept = CheckStates(sets, CollectStates(*planned));
  EXPECT_TRUE(kept.ok()) << kept.ToString();
  EXPECT_EQ(planned->form, Form::kPlanned);
  ExpectSameMeaning(*before, *planned, StrCat(Print(*planned), "\n"));
  return std::move(*planned);
}

TEST(LowerStates, ACacheIsUpdatedInPlace) {
  const Module m = Lower(R"(    %r = state.read @a : f32[4]
    %u = index_put %r, %i, %half : f32[4]
    state.write @a, %u
    %z = add %u, %y : f32[4]
    return %z
)");
  EXPECT_EQ(Count(m, OpId::kIndexPutInplace), 1u);
  EXPECT_EQ(Count(m, OpId::kClone), 0u);
}

// ExecuTorch's index_put_ has neither accumulate nor several indices: such an update is made apart and copied.
TEST(LowerStates, TheStockRuntimeUpdatesInPlaceOnlyWhatItCan) {
  auto updates = [](const char* attrs) {
    auto m = Parse(StrCat(R"(module {
  constant @i : i64[2] = [1,3]
  state @a : f32[4] = [10.0,11.0,12.0,13.0]
  graph @f(%x: f32[2]) {
    %i = const @i : i64[2]
    %r = state.read @a : f32[4]
    %u = index_put %r, %i, %x )", attrs, R"(: f32[4]
    state.write @a, %u
    return %u
  }
}
)"));
    EXPECT_TRUE(m.ok()) << m.status().ToString();
    Status lowered = LowerStates(*m, true);
    EXPECT_TRUE(lowered.ok()) << lowered.ToString();
    return Count(*m, OpId::kIndexPutInplace);
  };
  EXPECT_EQ(updates(""), 1u);
  EXPECT_EQ(updates("{accumulate=true} "), 0u);
}

// A state stored as int8 is two, and both are updated where they are, on either runtime.
TEST(LowerStates, RowsOfInt8AndTheirScalesAreUpdatedInPlace) {
  const char* text = R"(module {
  constant @i : i64[1] = [2]
  state @a : i8[4,4] = zeros
  state @a.scale : f32[4,1] = [1.0,2.0,3.0,4.0]
  graph @f(%q: i8[1,4], %s: f32[1,1]) {
    %i = const @i : i64[1]
    %r = state.read @a : i8[4,4]
    %rs = state.read @a.scale : f32[4,1]
    %u = index_put %r, %i, %q : i8[4,4]
    %us = index_put %rs, %i, %s : f32[4,1]
    state.write @a, %u
    state.write @a.scale, %us
    %y = dequantize_rows %u, %us : f32[4,4]
    return %y
  }
}
)";
  auto before = Parse(text);
  ASSERT_TRUE(before.ok()) << before.status().ToString();
  for (bool stock : {false, true}) {
    Module planned = Parse(text).value();
    Status lowered = LowerStates(planned, stock);
    ASSERT_TRUE(lowered.ok()) << lowered.ToString();
    EXPECT_EQ(Count(planned, OpId::kIndexPutInplace), 2u);
    EXPECT_EQ(Count(planned, OpId::kClone), 0u);
    StateStore states = InitStates(*before).value();
    StateMachine machine(planned);
    for (float call = 1; call < 4; ++call) {
      std::vector<OwnedTensor> inputs = {OwnedTensor::Make(TensorType(DType::kI8, {Dim(1), Dim(4)})),
                                         OwnedTensor::Make(TensorType(DType::kF32, {Dim(1), Dim(1)}))};
      for (int8_t i = 0; i < 4; ++i) inputs[0].view().as<int8_t>()[i] = static_cast<int8_t>(30 * i - 40 + static_cast<int>(call));
      *inputs[1].view().as<float>() = call / 8;
      auto want = Interpret(*before, *before->graphs[0], inputs, states);
      auto got = machine.Call(inputs);
      ASSERT_TRUE(want.ok() && got.ok()) << want.status().ToString() << got.status().ToString();
      EXPECT_EQ(ToVector((*got)[0]), ToVector((*want)[0]));
      for (size_t i : {0, 1}) EXPECT_EQ(machine.states()[i].storage, states[i].storage) << "state " << i << " after call " << call;
    }
  }
}

TEST(LowerStates, OldContentsUsedAfterTheUpdateAreCopied) {
  const Module m = Lower(R"(    %r = state.read @a : f32[4]
    %u = index_put %r, %i, %half : f32[4]
    state.write @a, %u
    %z = add %u, %r : f32[4]
    return %z
)");
  EXPECT_EQ(Count(m, OpId::kClone), 1u);
}

TEST(LowerStates, OldContentsUsedBeforeTheUpdateAreNot) {
  const Module m = Lower(R"(    %r = state.read @a : f32[4]
    %z = add %r, %y : f32[4]
    %u = index_put %r, %i, %half : f32[4]
    state.write @a, %u
    return %z
)");
  EXPECT_EQ(Count(m, OpId::kIndexPutInplace), 1u);
  EXPECT_EQ(Count(m, OpId::kClone), 0u);
}

TEST(LowerStates, ReadOnlyAndWriteOnly) {
  const Module m = Lower(R"(    %r = state.read @a : f32[4]
    %z = mul %r, %x : f32[4]
    state.write @b, %z
    return %z
)");
  EXPECT_EQ(Count(m, OpId::kClone), 0u);
}

TEST(LowerStates, AReturnedStateIsACopy) {
  const Module m = Lower(R"(    %r = state.read @a : f32[4]
    %s = state.read @b : f32[4]
    state.write @a, %x
    return %r, %s
)");
  EXPECT_EQ(Count(m, OpId::kClone), 2u);
}

TEST(LowerStates, UpdatedContentsReturnedAreACopyToo) {
  const Module m = Lower(R"(    %r = state.read @a : f32[4]
    %u = index_put %r, %i, %half : f32[4]
    state.write @a, %u
    return %u
)");
  EXPECT_EQ(Count(m, OpId::kIndexPutInplace), 1u);
  EXPECT_EQ(Count(m, OpId::kClone), 1u);
}

TEST(LowerStates, OutputsAreMemoryOfTheirOwn) {
  const Module m = Lower(R"(    %z = neg %y : f32[4]
    return %x, %c, %z, %z
)");
  EXPECT_EQ(Count(m, OpId::kClone), 3u);
  std::set<ValueId> outputs(m.graphs[0]->outputs.begin(), m.graphs[0]->outputs.end());
  EXPECT_EQ(outputs.size(), 4u);
}

TEST(LowerStates, CrossCopyInOrderNeedsNoCopy) {
  const Module m = Lower(R"(    %r = state.read @a : f32[4]
    state.write @b, %r
    state.write @a, %x
    return %x
)");
  EXPECT_EQ(Count(m, OpId::kClone), 1u);  // of the output
}

TEST(LowerStates, CrossCopyAgainstTheOrderAndSwaps) {
  Lower(R"(    %r = state.read @a : f32[4]
    state.write @a, %x
    state.write @b, %r
    return %x
)");
  Lower(R"(    %r = state.read @a : f32[4]
    %s = state.read @b : f32[4]
    state.write @a, %s
    state.write @b, %r
    return %x
)");
}

TEST(LowerStates, ContentsWrittenBackAfterAChangeAreRestored) {
  Lower(R"(    %r = state.read @a : f32[4]
    state.write @a, %x
    %s = state.read @a : f32[4]
    state.write @a, %r
    return %s
)");
  // A write of what the state holds changes nothing.
  EXPECT_EQ(Count(Lower(R"(    %r = state.read @a : f32[4]
    state.write @a, %r
    %z = add %r, %y : f32[4]
    return %z
)"), OpId::kClone), 0u);
  // The next one does.
  Lower(R"(    %r = state.read @a : f32[4]
    state.write @a, %r
    state.write @a, %x
    %z = add %r, %y : f32[4]
    return %z
)");
}

TEST(LowerStates, AnUpdateOfOneStateWrittenToAnother) {
  const Module m = Lower(R"(    %r = state.read @a : f32[4]
    %u = index_put %r, %i, %half : f32[4]
    state.write @b, %u
    return %x
)");
  EXPECT_EQ(Count(m, OpId::kIndexPutInplace), 0u);
  Lower(R"(    %r = state.read @a : f32[4]
    %u = index_put %r, %i, %half : f32[4]
    state.write @a, %u
    state.write @b, %u
    return %u
)");
}

TEST(LowerStates, TwoUpdatesOfOneState) {
  Lower(R"(    %r = state.read @a : f32[4]
    %u = index_put %r, %i, %half : f32[4]
    state.write @a, %u
    %s = state.read @a : f32[4]
    %v = index_put %s, %i, %half {accumulate=true} : f32[4]
    state.write @a, %v
    %z = add %u, %v : f32[4]
    return %z
)");
  Lower(R"(    %r = state.read @a : f32[4]
    %u = index_put %r, %i, %half : f32[4]
    %v = index_put %u, %i, %half {accumulate=true} : f32[4]
    state.write @a, %v
    return %u
)");
}

TEST(LowerStates, AnUpdateThatReadsTheStateTwice) {
  // The values to put are the state's own contents, seen through another read: they must not change while they are put.
  auto text = [](const char* first, const char* second) {
    return StrCat(R"(module {
  constant @i : i64[4] = [1,2,3,0]
  state @a : f32[4] = [10.0,11.0,12.0,13.0]
  graph @f(%x: f32[4]) {
    %i = const @i : i64[4]
    %r = state.read @a : f32[4]
    %s = state.read @a : f32[4]
    %u = index_put )", first, ", %i, ", second, R"( : f32[4]
    state.write @a, %u
    return %x
  }
}
)");
  };
  for (const std::string& t : {text("%s", "%r"), text("%r", "%s"), text("%s", "%s")}) {
    const Module before = Parse(t).value();
    Module planned = Parse(t).value();
    Status lowered = LowerStates(planned);
    ASSERT_TRUE(lowered.ok()) << lowered.ToString();
    ExpectSameMeaning(before, planned, StrCat(Print(planned), "\n"));
  }
}

TEST(LowerStates, RandomProgramsKeepTheirMeaning) {
  size_t in_place = 0, clones = 0;
  for (uint32_t seed = 0; seed < 3000; ++seed) {
    const size_t nodes = 2 + seed % 14;
    const Module before = samples::RandomProgram(seed, nodes);
    Module planned = samples::RandomProgram(seed, nodes);
    Status lowered = LowerStates(planned);
    ASSERT_TRUE(lowered.ok()) << lowered.ToString();
    ExpectSameMeaning(before, planned, StrCat("seed ", seed, "\n", Print(before), Print(planned), "\n"));
    if (HasFailure()) return;
    in_place += Count(planned, OpId::kIndexPutInplace);
    clones += Count(planned, OpId::kClone);
  }
  EXPECT_GT(in_place, 1000u);
  EXPECT_GT(clones, 1000u);
}

}  // namespace
}  // namespace dovetail
