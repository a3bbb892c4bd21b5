#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "dovetail/program.h"
#include "format/format_samples.h"
#include "format/meta.h"
#include "runtime/profiler.h"

namespace dovetail {
namespace {

using Floats = std::vector<float>;

std::unique_ptr<Program> Make(const pte::ProgramDesc& desc) {
  auto bytes = pte::SerializePte(desc);
  EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
  auto program = Program::FromBytes(*bytes, "test.pte");
  EXPECT_TRUE(program.ok()) << program.status().ToString();
  return program.ok() ? std::move(program).value() : nullptr;
}

TensorView View(Floats& values, std::vector<int64_t> sizes) { return TensorView(DType::kF32, sizes, values.data()); }
Floats ToVector(const TensorView& t) { return {t.as<float>(), t.as<float>() + t.numel()}; }

struct Running {
  std::unique_ptr<Program> program;
  std::unique_ptr<Instance> instance;
  Method* method = nullptr;

  explicit Running(const pte::ProgramDesc& desc, InstanceOptions options = {}) {
    options.threads = options.threads ? options.threads : 1;
    program = Make(desc);
    auto made = program->CreateInstance(options);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    instance = std::move(made).value();
    auto loaded = instance->LoadMethod(program->methods()[0].name);
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    if (loaded.ok()) method = *loaded;
  }
  Floats Call(Floats x, std::vector<int64_t> sizes) {
    const TensorView in = View(x, std::move(sizes));
    const Status s = method->Execute({&in, 1});
    EXPECT_TRUE(s.ok()) << s.ToString();
    return s.ok() ? ToVector(method->outputs()[0]) : Floats();
  }
};

std::string ExecuteError(Method* method, std::vector<TensorView> inputs) {
  const Status s = method->Execute(inputs);
  EXPECT_FALSE(s.ok());
  return s.ToString();
}
#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Runtime, RunsAKernel) {
  Running r(samples::Add());
  Floats a = {1, 2, 3, 4, 5, 6}, b = {10, 20, 30, 40, 50, 60};
  const TensorView inputs[] = {View(a, {2, 3}), View(b, {2, 3})};
  ASSERT_TRUE(r.method->Execute(inputs).ok());
  EXPECT_EQ(ToVector(r.method->outputs()[0]), (Floats{11, 22, 33, 44, 55, 66}));
}

TEST(Runtime, InputsAreCheckedByName) {
  Running r(samples::Add());
  Floats a(6), b(6);
  const TensorView good = View(a, {2, 3});
  EXPECT_HAS(ExecuteError(r.method, {good}), "takes 2 inputs, but 1 are given");
  EXPECT_HAS(ExecuteError(r.method, {good, View(b, {6})}), "input 'input_1' of method 'forward' has rank 1, not 2");
  EXPECT_HAS(ExecuteError(r.method, {good, View(b, {3, 2})}), "has size 3 at dimension 0; the program takes 2");
  EXPECT_HAS(ExecuteError(r.method, {good, TensorView()}), "is missing");
  EXPECT_HAS(ExecuteError(r.method, {good, TensorView(DType::kI32, std::vector<int64_t>{2, 3}, b.data())}), "is i32, not f32");
  EXPECT_HAS(ExecuteError(r.method, {good, TensorView(DType::kF32, std::vector<int64_t>{2, 3}, nullptr)}), "has no data");
}

TEST(Runtime, StatesStartGoOnAndAreResetReadWrittenSavedAndLoaded) {
  Running r(samples::State());
  EXPECT_EQ(r.Call({1, 1}, {2}), (Floats{12, 23}));
  EXPECT_EQ(r.Call({1, 1}, {2}), (Floats{14, 26}));
  ASSERT_EQ(r.instance->states().size(), 1u);
  EXPECT_EQ(r.instance->states()[0].name, "s");
  EXPECT_TRUE(r.instance->states()[0].has_initial_value);
  auto state = r.instance->State("s");
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(ToVector(*state), (Floats{14, 26}));
  const std::vector<std::byte> saved = r.instance->SaveStates();
  ASSERT_TRUE(r.instance->ResetState("s").ok());
  EXPECT_EQ(ToVector(*state), (Floats{10, 20}));
  ASSERT_TRUE(r.instance->LoadStates(saved).ok());
  EXPECT_EQ(ToVector(*state), (Floats{14, 26}));
  Floats value = {1, 2};
  ASSERT_TRUE(r.instance->WriteState("s", View(value, {2})).ok());
  EXPECT_EQ(r.Call({0, 0}, {2}), (Floats{1, 2}));
  ASSERT_TRUE(r.instance->RewindState("s", 0, 1).ok());
  EXPECT_EQ(ToVector(*state), (Floats{1, 20}));
  r.instance->ResetStates();
  EXPECT_EQ(ToVector(*state), (Floats{10, 20}));

  EXPECT_HAS(r.instance->State("t").status().ToString(), "has no state 't'; its states are s");
  EXPECT_HAS(r.instance->WriteState("s", View(value, {1, 2})).ToString(), "state 's' is f32[2], the value to write is f32[1,2]");
  EXPECT_HAS(r.instance->RewindState("s", 0, 3).ToString(), "cannot be rewound to position 3");
  EXPECT_HAS(r.instance->RewindState("s", 1, 0).ToString(), "has no dimension 1");
  for (size_t n = 0; n < saved.size(); ++n) EXPECT_FALSE(r.instance->LoadStates(std::span(saved).first(n)).ok()) << n;
  EXPECT_EQ(ToVector(*state), (Floats{10, 20})) << "a failed load changed the state";
}

TEST(Runtime, InstancesShareNothing) {
  Running r(samples::State());
  auto other = r.program->CreateInstance({.threads = 1});
  ASSERT_TRUE(other.ok());
  r.Call({1, 1}, {2});
  EXPECT_EQ(ToVector(*(*other)->State("s")), (Floats{10, 20}));
}

TEST(Runtime, ThreadsMayEachHaveAnInstance) {
  const auto program = Make(samples::State());
  std::vector<std::thread> threads;
  std::vector<Floats> results(4);
  for (size_t t = 0; t < results.size(); ++t) {
    threads.emplace_back([&, t] {
      auto instance = program->CreateInstance({.threads = 2});
      auto method = (*instance)->LoadMethod("forward");
      Floats x = {static_cast<float>(t), 1};
      const TensorView in = View(x, {2});
      for (int i = 0; i < 10; ++i) ASSERT_TRUE((*method)->Execute({&in, 1}).ok());
      results[t] = ToVector((*method)->outputs()[0]);
    });
  }
  for (std::thread& t : threads) t.join();
  for (size_t t = 0; t < results.size(); ++t) EXPECT_EQ(results[t], (Floats{10 + 20 * static_cast<float>(t), 50}));
}

TEST(Runtime, MethodsShareStatesByName) {
  pte::ProgramDesc desc = samples::State();
  desc.methods.push_back(desc.methods[0]);
  desc.methods[1].name = "again";
  Running r(desc);
  auto again = r.instance->LoadMethod("again");
  ASSERT_TRUE(again.ok());
  r.Call({1, 1}, {2});
  Floats x = {1, 1};
  const TensorView in = View(x, {2});
  ASSERT_TRUE((*again)->Execute({&in, 1}).ok());
  EXPECT_EQ(ToVector((*again)->outputs()[0]), (Floats{14, 26}));
  EXPECT_HAS(r.instance->LoadMethod("backward").status().ToString(), "has no method 'backward'; it has forward, again");
}

// out = x + x for x of [s0 in 2..4, 3], with a number computed from its size beside it.
pte::ProgramDesc Dynamic() {
  pte::ProgramDesc p;
  pte::MethodDesc m;
  auto dynamic = [](pte::TensorDesc t) {
    t.dynamic_bound = true;
    return t;
  };
  m.values = {dynamic(samples::Planned({4, 3}, 0)), int64_t{1}, dynamic(samples::Planned({4, 3}, 48)), int64_t{0}, int64_t{0}, int64_t{0}, int64_t{3}};
  m.inputs = {0};
  m.outputs = {2, 5};
  m.operators = {{"aten::add", "out"}, {"aten::sym_size", "int"}, {"executorch_prim::mul", "Scalar"}};
  m.instructions = {pte::KernelCallDesc{0, {0, 0, 1, 2, 2}}, pte::KernelCallDesc{1, {0, 4, 3}}, pte::KernelCallDesc{2, {3, 6, 5}}};
  m.non_const_buffer_sizes = {0, 96};
  p.methods.push_back(std::move(m));
  MetaProgram meta;
  meta.symbols["s0"] = {2, 4};
  meta.methods = {
      {"forward", {{"x", Shape{Dim::Symbol("s0"), 3}}}, {{"y", Shape{Dim::Symbol("s0"), 3}}, {"elements", {}}}, {"model.py:3, in forward: y = x + x", "", ""}}};
  p.named_data = {{.keys = {std::string(kMetaKey)}, .payload = Payload::Owned(SerializeMeta(meta)), .alignment = 16}};
  return p;
}

TEST(Runtime, DynamicSizesAreResizedAndCheckedAgainstTheirRange) {
  Running r(Dynamic());
  EXPECT_EQ(r.program->methods()[0].inputs[0].type.ToString(), "f32[s0,3]");
  for (int64_t n : {2, 4, 3, 2}) {
    Floats x(static_cast<size_t>(n) * 3, 1.5f);
    EXPECT_EQ(r.Call(x, {n, 3}), Floats(x.size(), 3.0f));
    EXPECT_EQ(r.method->outputs()[0].sizes[0], n);
    EXPECT_EQ(*r.method->outputs()[1].as<int64_t>(), 3 * n);
  }
  Floats x(15);
  EXPECT_HAS(ExecuteError(r.method, {View(x, {1, 3})}), "input 'x' of method 'forward' has size 1 at dimension 0; the program takes 2 to 4 there (f32[s0,3])");
  EXPECT_HAS(ExecuteError(r.method, {View(x, {5, 3})}), "2 to 4");
  EXPECT_EQ(r.Call(Floats(6, 1), {2, 3}), Floats(6, 2)) << "a refused call must not spoil the next one";
}

TEST(Runtime, AProgramThatWritesAConstantIsRefused) {
  pte::ProgramDesc desc = samples::State();
  auto& call = std::get<pte::KernelCallDesc>(desc.methods[0].instructions[0]);
  call.args = {0, 2, 1, 1};  // mul.out into the constant
  const auto program = Make(desc);
  auto instance = program->CreateInstance({.threads = 1});
  EXPECT_HAS((*instance)->LoadMethod("forward").status().ToString(), "writes the constant value 1 (f32[2])");
}

TEST(Runtime, MissingOperatorsAndDelegatesAreListedTogether) {
  pte::ProgramDesc desc = samples::Add();
  desc.methods[0].operators = {{"aten::frobnicate", "out"}, {"aten::other", "out"}};
  desc.methods[0].instructions.push_back(pte::KernelCallDesc{1, {0, 1, 3}});
  const auto program = Make(desc);
  auto instance = program->CreateInstance({.threads = 1});
  const std::string error = (*instance)->LoadMethod("forward").status().ToString();
  EXPECT_HAS(error, "needs 2 operators");
  EXPECT_HAS(error, "aten::frobnicate.out");
  EXPECT_HAS(error, "aten::other.out");
  const auto delegated = Make(samples::FullyConnected(true));
  auto second = delegated->CreateInstance({.threads = 1});
  EXPECT_HAS((*second)->LoadMethod("forward").status().ToString(), "delegate XnnpackBackend (method 'forward')");
}

TEST(Runtime, WrongArgumentsOfACallAreErrorsAtLoad) {
  const std::vector<std::vector<int32_t>> wrong = {{}, {0}, {0, 1}, {0, 1, 2}, {0, 2, 1, 3, 3}, {2, 1, 2, 3, 3}, {0, 1, 2, 2, 2}, {0, 1, 2, 3, 1}};
  for (const auto& args : wrong) {
    pte::ProgramDesc desc = samples::Add();
    std::get<pte::KernelCallDesc>(desc.methods[0].instructions[0]).args = args;
    const auto program = Make(desc);
    auto instance = program->CreateInstance({.threads = 1});
    EXPECT_HAS((*instance)->LoadMethod("forward").status().ToString(), "instruction 0: aten::add.out in method 'forward'");
  }
}

TEST(Runtime, TheMemoryLimitHolds) {
  const auto program = Make(samples::State());
  EXPECT_FALSE(program->CreateInstance({.threads = 1, .memory_limit = 4}).ok());
  auto instance = program->CreateInstance({.threads = 1, .memory_limit = 32});
  ASSERT_TRUE(instance.ok());
  EXPECT_HAS((*instance)->LoadMethod("forward").status().ToString(), "memory limit");
}

TEST(Runtime, TheProfilerSeesEveryInstruction) {
  Profiler profiler(16);
  Running r(samples::State(), {.profiler = &profiler});
  r.Call({1, 1}, {2});
  ASSERT_EQ(profiler.events().size(), 4u);
  EXPECT_EQ(profiler.events()[0].name, "aten::mul.out");
  EXPECT_EQ(profiler.events()[3].instruction, Profiler::kWholeCall);
  EXPECT_TRUE(profiler.details().empty());
  for (size_t i = 0; i < 3; ++i) {
    const Profiler::Event& e = profiler.events()[i];
    EXPECT_EQ(e.instruction, i);
    EXPECT_EQ(e.node, Profiler::kNoNode);
    EXPECT_GE(e.start_ns, i ? profiler.events()[i - 1].end_ns : profiler.events()[3].start_ns);
    EXPECT_LE(e.end_ns, profiler.events()[3].end_ns);
  }
  profiler.Reset(2);
  r.Call({1, 1}, {2});
  EXPECT_EQ(profiler.events().size(), 2u);
  EXPECT_EQ(profiler.dropped(), 2u);
}

TEST(Runtime, TheProfilerDescribesInstructions) {
  Profiler profiler(16);
  Running r(samples::State(), {.profiler = &profiler});
  profiler.set_describing(true);
  r.Call({1, 1}, {2});
  ASSERT_EQ(profiler.details().size(), 3u);
  const auto& details = profiler.details();
  EXPECT_EQ(details[0].inputs, (std::vector<std::string>{"f32[2]", "constant f32[2]"}));
  EXPECT_EQ(details[0].outputs, (std::vector<std::string>{"f32[2]"}));
  EXPECT_EQ(details[0].bytes, 24u);
  EXPECT_EQ(details[0].constant_bytes, 8u);
  EXPECT_EQ(details[1].inputs[1], "state f32[2]");
  EXPECT_EQ(details[2].bytes, 16u) << "copy_ reads its source and writes the state";
  profiler.set_describing(false);
  profiler.Clear();
  r.Call({1, 1}, {2});
  EXPECT_EQ(profiler.events().size(), 4u);
  EXPECT_TRUE(profiler.details().empty());
}

// A delegate that owns the meaning of a state: inputs x and the state, outputs y and the same state. state += x; y = 2 * state.
class Accumulator final : public Delegate {
 public:
  explicit Accumulator(Profiler* profiler) : profiler_(profiler) {}
  Status Execute(std::span<const TensorView> inputs, std::span<TensorView> outputs) override {
    if (inputs[1].data != outputs[1].data) return InvalidArgument("the state of the call is not one tensor");
    for (int64_t i = 0; i < inputs[0].numel(); ++i) {
      outputs[1].as<float>()[i] += inputs[0].as<float>()[i];
      outputs[0].as<float>()[i] = 2 * outputs[1].as<float>()[i];
    }
    outputs[0].sizes = inputs[0].sizes;
    if (!profiler_) return OkStatus();
    for (uint32_t node : {0, 1}) {
      const int64_t now = Profiler::Now();
      profiler_->RecordNode("Step", node, now, now);
      if (profiler_->describing()) profiler_->Describe({.source = {}, .layer = {}, .op = {}, .inputs = {}, .outputs = {}, .bytes = 9, .constant_bytes = 5, .macs = 7});
    }
    return OkStatus();
  }

 private:
  Profiler* profiler_;
};

// Two calls of one delegate.
pte::ProgramDesc Accumulate() {
  pte::ProgramDesc p;
  p.mutable_initial = {samples::Bytes<float>({10, 20})};
  p.delegate_blobs = {samples::Bytes<float>({0})};
  pte::MethodDesc m;
  pte::TensorDesc state = samples::Planned({2}, 0);
  state.data_buffer_idx = 1;
  state.fully_qualified_name = "total";
  m.values = {samples::Planned({2}, 16), state, samples::Planned({2}, 32)};
  m.inputs = {0};
  m.outputs = {2, 1};
  m.delegates = {{.id = "Accumulator"}};
  m.instructions = {pte::DelegateCallDesc{0, {0, 1, 2, 1}}, pte::DelegateCallDesc{0, {0, 1, 2, 1}}};
  m.non_const_buffer_sizes = {0, 48};
  p.methods.push_back(std::move(m));
  return p;
}

const DelegateEntry kAccumulator[] = {{"Accumulator",
                                       [](const DelegateInitContext& ctx) -> Result<std::unique_ptr<Delegate>> {
                                         return std::unique_ptr<Delegate>(new Accumulator(ctx.profiler));
                                       },
                                       [](const DelegateInitContext&) -> Result<size_t> { return 2; }}};

TEST(Runtime, ADelegateUpdatesAStateThroughAnAliasedResult) {
  Running r(Accumulate(), {.delegates = kAccumulator});
  EXPECT_EQ(r.Call({1, 2}, {2}), (Floats{24, 48}));
  EXPECT_EQ(r.Call({1, 2}, {2}), (Floats{28, 56}));
  EXPECT_EQ(ToVector(*r.instance->State("total")), (Floats{14, 28}));
  EXPECT_EQ(ToVector(r.method->outputs()[1]), (Floats{14, 28}));
}

TEST(Runtime, NodesOfADelegateComeBeforeItsInstruction) {
  Profiler profiler(16);
  Running r(Accumulate(), {.delegates = kAccumulator, .profiler = &profiler});
  profiler.set_describing(true);
  r.Call({1, 2}, {2});
  const auto events = profiler.events();
  ASSERT_EQ(events.size(), 7u);
  for (size_t call : {0, 1}) {
    const Profiler::Event& delegate = events[call * 3 + 2];
    EXPECT_EQ(delegate.name, "Accumulator");
    EXPECT_EQ(delegate.instruction, call);
    for (uint32_t node : {0, 1}) {
      const Profiler::Event& e = events[call * 3 + node];
      EXPECT_EQ(e.instruction, call);
      EXPECT_EQ(e.node, node);
      EXPECT_EQ(e.method, r.program->methods()[0].name);
      EXPECT_TRUE(e.start_ns >= delegate.start_ns && e.end_ns <= delegate.end_ns);
    }
    // Its own nodes, not those of the call before: 4 arguments of 8 bytes, and what the nodes read of constants.
    const Profiler::Detail& d = profiler.details()[call * 3 + 2];
    EXPECT_EQ(d.macs, 14u);
    EXPECT_EQ(d.constant_bytes, 10u);
    EXPECT_EQ(d.bytes, 42u);
    EXPECT_EQ(d.outputs[1], "state f32[2]");
  }
}

TEST(Runtime, JumpsAndMovesFollowTheCondition) {
  // out = x; if flag: out = x + x.
  pte::ProgramDesc p;
  pte::MethodDesc m;
  m.values = {samples::Planned({2}, 0), samples::Planned({1}, 16, DType::kBool), samples::Planned({2}, 32), int64_t{1}};
  m.inputs = {0, 1};
  m.outputs = {2};
  m.operators = {{"aten::add", "out"}};
  m.instructions = {pte::MoveCallDesc{0, 2}, pte::JumpFalseDesc{1, 3}, pte::KernelCallDesc{0, {0, 0, 3, 2, 2}}, pte::FreeCallDesc{0}};
  m.non_const_buffer_sizes = {0, 48};
  p.methods.push_back(std::move(m));
  Running r(p);
  for (const bool flag : {true, false, true}) {
    Floats x = {1, 2};
    uint8_t f = flag;
    const TensorView inputs[] = {View(x, {2}), TensorView(DType::kBool, std::vector<int64_t>{1}, &f)};
    ASSERT_TRUE(r.method->Execute(inputs).ok());
    EXPECT_EQ(ToVector(r.method->outputs()[0]), flag ? (Floats{2, 4}) : x);
  }
}

TEST(Meta, ComesBackAndRefusesDamage) {
  const auto meta = Dynamic();
  Running r(meta);
  MetaProgram program;
  program.symbols["s0"] = {1, 7};
  program.methods = {{"m", {{"x", Shape{Dim::Symbol("s0"), 2}}}, {}, {"a.py:1", "", "a.py:1"}}};
  std::vector<std::byte> bytes = SerializeMeta(program);
  auto back = ReadMeta(bytes, "f");
  ASSERT_TRUE(back.ok()) << back.status().ToString();
  EXPECT_EQ(back->symbols, program.symbols);
  EXPECT_EQ(back->methods[0].inputs[0].shape.ToString(), "s0,2");
  EXPECT_EQ(back->methods[0].instruction_sources, program.methods[0].instruction_sources);
  for (size_t n = 0; n < bytes.size(); n += 3) EXPECT_FALSE(ReadMeta(std::span(bytes).first(n), "f").ok());
}

}  // namespace
}  // namespace dovetail
