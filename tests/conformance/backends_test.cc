// One suite for every backend: each fixture, partitioned for it and run by its delegate, gives what PyTorch gave at every step, and leaves the
// states as the interpreter does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "backends/xnnpack/backend.h"
#include "backends/xnnpack/delegate/delegate.h"
#include "compile/compile.h"
#include "compile/emit.h"
#include "compile/lower_states.h"
#include "conformance/reference_backend.h"
#include "dovetail/program.h"
#include "format/pte_writer.h"
#include "import/import.h"
#include "ir/text.h"
#include "ir/verifier.h"
#include "models/reference.h"
#include "passes/passes.h"

namespace dovetail {
namespace {

using testing::AliasedUpdates;

struct Configuration {
  const char* name;
  std::vector<const Backend*> backends;
};
std::vector<Configuration> Configurations() {
  return {{"None", {}},
          {"Xnnpack", {&XnnpackBackend()}},
          {"Reference", {&testing::ReferenceBackend()}},
          {"ReferenceInPlace", {&testing::InPlaceReferenceBackend()}},
          {"XnnpackThenReferenceInPlace", {&XnnpackBackend(), &testing::InPlaceReferenceBackend()}},
          {"StatesByReferenceThenXnnpack", {&testing::StateReferenceBackend(), &XnnpackBackend()}}};
}

OwnedTensor Copy(const TensorView& t) {
  OwnedTensor copy = OwnedTensor::Make(t.type());
  if (t.nbytes() > 0) std::memcpy(copy.view().data, t.data, t.nbytes());
  return copy;
}

struct Running {
  Module module;  // regions of the reference backend live in it
  std::unique_ptr<Program> program;
  std::unique_ptr<Instance> instance;
  Method* method = nullptr;
};

Status Start(Running* r, const std::vector<const Backend*>& backends) {
  const StateSets before = CollectStates(r->module);
  DT_ASSIGN_OR_RETURN([[maybe_unused]] const PartitionReport report, Partition(r->module, backends));
  DT_RETURN_IF_ERROR(AttendByRow(r->module));
  DT_RETURN_IF_ERROR(Verify(r->module));
  DT_RETURN_IF_ERROR(LowerStates(r->module));
  DT_RETURN_IF_ERROR(Verify(r->module));
  DT_RETURN_IF_ERROR(CheckStates(before, CollectStates(r->module)));
  EmitStats stats;
  DT_ASSIGN_OR_RETURN(const pte::ProgramDesc desc, Emit(r->module, {backends, false}, stats));
  DT_ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, pte::SerializePte(desc));
  DT_ASSIGN_OR_RETURN(r->program, Program::FromBytes(bytes, "conformance.pte"));
  static const DelegateEntry delegates[] = {kXnnpackDelegate, testing::kReferenceDelegate};
  InstanceOptions options;
  options.delegates = delegates;
  options.threads = 1;
  DT_ASSIGN_OR_RETURN(r->instance, r->program->CreateInstance(options));
  DT_ASSIGN_OR_RETURN(r->method, r->instance->LoadMethod(r->program->methods()[0].name));
  return OkStatus();
}

Result<testing::Tensors> Call(Running& r, const std::vector<OwnedTensor>& inputs) {
  std::vector<TensorView> views;
  for (const OwnedTensor& t : inputs) views.push_back(t.view());
  DT_RETURN_IF_ERROR(r.method->Execute(views));
  testing::Tensors outputs;
  for (size_t i = 0; i < r.method->outputs().size(); ++i) outputs.emplace(r.method->info().outputs[i].name, Copy(r.method->outputs()[i]));
  return outputs;
}

std::vector<std::string> Fixtures() {
  std::vector<std::string> files;
  for (const char* folder : {"tests/fixtures", "tests/fixtures/import"})
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.path().extension() == ".pt2" && !entry.path().stem().string().starts_with("refused_")) files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

class Backends : public ::testing::TestWithParam<Configuration> {};

TEST_P(Backends, GiveWhatPyTorchGave) {
  for (const std::string& path : Fixtures()) {
    SCOPED_TRACE(path);
    Running r;
    auto optimized = ImportAndOptimize(path, {});
    ASSERT_TRUE(optimized.ok()) << optimized.status().ToString();
    r.module = std::move(optimized).value();
    Status started = Start(&r, GetParam().backends);
    ASSERT_TRUE(started.ok()) << started.ToString();
    std::string stem = path.substr(0, path.size() - 4);
    if (stem.ends_with(".core")) stem.resize(stem.size() - 5);
    const auto reference = testing::ReadSafetensors(stem + ".ref.safetensors");
    ASSERT_TRUE(reference.ok());
    std::vector<std::string> names;
    for (const TensorInfo& t : r.method->info().inputs) names.push_back(t.name);
    const auto comparison = testing::CompareWithReference(*reference, names, [&](const std::vector<OwnedTensor>& inputs) { return Call(r, inputs); });
    ASSERT_TRUE(comparison.ok()) << comparison.status().ToString();
    EXPECT_LE(comparison->worst, 1e-4) << comparison->worst_name;
    const auto imported = ImportPt2(path);
    ASSERT_TRUE(imported.ok());
    const auto interpreted = testing::CompareWithReference(*imported, *reference);
    ASSERT_TRUE(interpreted.ok());
    for (size_t s = 0; s < imported->states.size(); ++s) {
      const auto state = r.instance->State(imported->states[s].name);
      ASSERT_TRUE(state.ok());
      const auto difference = testing::Difference(Copy(*state), interpreted->states[s]);
      ASSERT_TRUE(difference.ok());
      EXPECT_LE(*difference, 1e-4) << imported->states[s].name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Backends, ::testing::ValuesIn(Configurations()), [](const auto& info) { return info.param.name; });

TEST(AliasedState, IsUpdatedByTheDelegateInItsOwnMemory) {
  for (const Backend* backend : {&testing::InPlaceReferenceBackend(), &testing::StateReferenceBackend()}) {
    Running r;
    auto optimized = ImportAndOptimize("tests/fixtures/llama_tiny_index_put.pt2", {});
    ASSERT_TRUE(optimized.ok());
    r.module = std::move(optimized).value();
    const Status started = Start(&r, {backend});
    ASSERT_TRUE(started.ok()) << started.ToString();
    const size_t before = AliasedUpdates();
    int64_t token = 5, position = 0;
    const TensorView inputs[] = {TensorView(DType::kI64, std::vector<int64_t>{1, 1}, &token), TensorView(DType::kI64, std::vector<int64_t>{1}, &position)};
    const Status ran = r.method->Execute(inputs);
    ASSERT_TRUE(ran.ok()) << ran.ToString();
    EXPECT_EQ(AliasedUpdates() - before, 4u);
    for (const OperatorInfo& op : r.method->info().operators) EXPECT_NE(op.name, "aten::copy_") << "a cache is copied";
  }
}

// What an alias must not break: each body leaves other contents if the region changes the state's memory where it may not.
struct Body {
  const char* name;
  const char* text;
  // Updates in place per call, where one region has all and where it has the update alone.
  size_t all, alone;
};
constexpr Body kBodies[] = {
    {"Plain", "%r = state.read @a : f32[4]\n%u = index_put %r, %i, %h : f32[4]\nstate.write @a, %u\n%o = neg %u : f32[4]\nreturn %o\n", 1, 1},
    {"OldContentsReadLater", "%r = state.read @a : f32[4]\n%u = index_put %r, %i, %h : f32[4]\nstate.write @a, %u\n%p = neg %u : f32[4]\n%o = add %r, %p : f32[4]\nreturn %o\n", 1, 0},
    {"NotWrittenBack", "%r = state.read @a : f32[4]\n%u = index_put %r, %i, %h : f32[4]\nstate.write @b, %u\n%o = add %r, %u : f32[4]\nreturn %o\n", 0, 0},
    {"WrittenTwice", "%r = state.read @a : f32[4]\n%u = index_put %r, %i, %h : f32[4]\nstate.write @a, %u\nstate.write @a, %x\n%o = neg %u : f32[4]\nreturn %o\n", 0, 0},
    {"CrossCopy", "%r = state.read @a : f32[4]\n%s = state.read @b : f32[4]\n%u = index_put %r, %i, %h : f32[4]\nstate.write @b, %r\nstate.write @a, %u\n%o = neg %s : f32[4]\nreturn %o\n", 1, 1},
};

class AliasedBodies : public ::testing::TestWithParam<Body> {};

TEST_P(AliasedBodies, KeepTheirMeaning) {
  std::string body;
  std::string_view rest = GetParam().text;
  for (size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) body += StrCat("    ", rest.substr(0, end), "\n");
  const std::string text = StrCat(R"(module {
  constant @i : i64[2] = [1,3]
  state @a : f32[4] = [10.0,11.0,12.0,13.0]
  state @b : f32[4] = [20.0,21.0,22.0,23.0]
  graph @f(%x: f32[4]) {
    %i = const @i : i64[2]
    %h = slice %x {end=2} : f32[2]
)", body, "  }\n}\n");
  const auto before = Parse(text);
  ASSERT_TRUE(before.ok()) << before.status().ToString();
  for (const Backend* backend : {&testing::ReferenceBackend(), &testing::InPlaceReferenceBackend(), &testing::StateReferenceBackend()}) {
    Running r;
    r.module = Parse(text).value();
    const Status started = Start(&r, {backend});
    ASSERT_TRUE(started.ok()) << started.ToString();
    StateStore states = InitStates(*before).value();
    const size_t aliased = AliasedUpdates();
    for (float call = 1; call < 4; ++call) {
      OwnedTensor x = OwnedTensor::Make(TensorType(DType::kF32, {Dim(4)}));
      for (int i = 0; i < 4; ++i) x.view().as<float>()[i] = call * static_cast<float>(i + 1);
      const std::vector<OwnedTensor> inputs = {x};
      const auto want = Interpret(*before, *before->graphs[0], inputs, states);
      ASSERT_TRUE(want.ok()) << want.status().ToString();
      const auto got = Call(r, inputs);
      ASSERT_TRUE(got.ok()) << got.status().ToString();
      EXPECT_EQ(*testing::Difference(got->begin()->second, (*want)[0]), 0);
      for (size_t s = 0; s < states.size(); ++s) {
        const auto state = r.instance->State(before->states[s].name);
        if (state.ok()) EXPECT_EQ(*testing::Difference(Copy(*state), states[s]), 0) << before->states[s].name;
        else EXPECT_EQ(before->states[s].name, "b") << "only @b is a state that some bodies do not touch";
      }
    }
    const size_t expected = backend == &testing::ReferenceBackend() ? 0 : backend == &testing::InPlaceReferenceBackend() ? GetParam().all : GetParam().alone;
    EXPECT_EQ(AliasedUpdates() - aliased, 3 * expected);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AliasedBodies, ::testing::ValuesIn(kBodies), [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dovetail
