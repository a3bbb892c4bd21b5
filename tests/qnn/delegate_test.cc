// The QNN delegate on a library: on the provider of our own always, with all its ways to fail, and on Qualcomm's where DOVETAIL_QNN_LIB names it.
#include "backends/qnn/delegate/delegate.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "backends/qnn/api/binary_info.h"
#include "dovetail/program.h"
#include "format/qnn_blob.h"
#include "qnn/fake_provider.h"
#include "qnn/sample_program.h"

namespace dovetail {
namespace {

using testing::SampleBinary;
using testing::SampleProgram;
using Bytes = std::vector<std::byte>;
using Row = std::vector<uint16_t>;

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

const DelegateEntry kDelegates[] = {kQnnDelegate};

Bytes BlobOf(const Bytes& binary) { return WriteQnnBlob(binary); }
Bytes SpecOf(const std::string& soc, bool shared_weights = false) {
  const qnn::Soc& s = **qnn::FindSoc(soc);
  return QnnCompileSpec({s.model, s.arch, s.vtcm_mb, false, shared_weights});
}

struct Running {
  std::unique_ptr<Program> program;
  std::unique_ptr<Instance> instance;

  Running(const pte::ProgramDesc& desc, const QnnOptions& options) {
    auto bytes = pte::SerializePte(desc);
    EXPECT_TRUE(bytes.ok()) << bytes.status().ToString();
    auto made = Program::FromBytes(*bytes, "sample.pte", options);
    EXPECT_TRUE(made.ok()) << made.status().ToString();
    program = std::move(*made);
    auto running = program->CreateInstance({.threads = 1, .delegates = kDelegates});
    EXPECT_TRUE(running.ok()) << running.status().ToString();
    instance = std::move(*running);
  }
  std::string LoadError(const char* method = "forward") {
    auto loaded = instance->LoadMethod(method);
    EXPECT_FALSE(loaded.ok());
    return loaded.status().ToString();
  }
  Method* Load(const char* method) {
    auto loaded = instance->LoadMethod(method);
    EXPECT_TRUE(loaded.ok()) << loaded.status().ToString();
    return loaded.ok() ? *loaded : nullptr;
  }
  Status Run(Method* method, Row x) {
    const TensorView in(DType::kU16, std::vector<int64_t>{4}, x.data());
    return method->Execute({&in, 1});
  }
  // The total after adding x.
  Row Call(Method* method, Row x) {
    const Status s = Run(method, std::move(x));
    EXPECT_TRUE(s.ok()) << s.ToString();
    const auto* out = method->outputs()[0].as<uint16_t>();
    return Row(out, out + 4);
  }
};

// What either library must do.
void AddsUpInTwoMethods(const qnn::Library& library) {
  auto binary = SampleBinary(library, "SM8650", {"prefill", "decode"});
  ASSERT_TRUE(binary.ok()) << binary.status().ToString();
  Running r(SampleProgram(BlobOf(*binary), SpecOf("SM8650"), {"prefill", "decode"}), {.library = library.path(), .soc = "SM8650"});
  Method *prefill = r.Load("prefill"), *decode = r.Load("decode");
  ASSERT_TRUE(prefill && decode);
  // 100 stands for 0: the total starts as {0, 0.01, 0.02, 0.03}, and 110 adds 0.1 to it.
  EXPECT_EQ(r.Call(prefill, {110, 110, 110, 100}), (Row{110, 111, 112, 103}));
  EXPECT_EQ(r.Call(decode, {100, 100, 200, 300}), (Row{110, 111, 212, 303}));
  EXPECT_EQ(r.Call(prefill, {101, 101, 101, 101}), (Row{111, 112, 213, 304}));
  const auto state = r.instance->State("total");
  ASSERT_TRUE(state.ok());
  EXPECT_EQ(Row(state->as<uint16_t>(), state->as<uint16_t>() + 4), (Row{111, 112, 213, 304}));
  auto other = r.program->CreateInstance({.threads = 1, .delegates = kDelegates});
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(r.Call(*(*other)->LoadMethod("decode"), {100, 100, 100, 100}), (Row{100, 101, 102, 103})) << "instances share a state";
}

void DescribesBinaries(const qnn::Library& library) {
  auto binary = SampleBinary(library, "SM8550", {"prefill", "decode", "third"});
  ASSERT_TRUE(binary.ok()) << binary.status().ToString();
  auto info = qnn::ReadBinaryInfo(library, *binary);
  ASSERT_TRUE(info.ok()) << info.status().ToString();
  EXPECT_EQ(info->soc_model, 43u);
  EXPECT_EQ(info->build, library.build());
  EXPECT_EQ(info->core.minor, library.core_version().minor);
  EXPECT_EQ(info->backend.minor, library.backend_version().minor);
  ASSERT_EQ(info->graphs.size(), 3u);
  for (const char* name : {"prefill", "decode", "third"}) {
    const qnn::BinaryGraph* graph = info->FindGraph(name);
    ASSERT_TRUE(graph) << name;
    ASSERT_EQ(graph->inputs.size(), 2u);
    ASSERT_EQ(graph->outputs.size(), 1u);
    const qnn::BinaryTensor& out = graph->outputs[0];
    EXPECT_EQ(out.name, "output_0_total");
    EXPECT_EQ(out.dims, (std::vector<uint32_t>{4}));
    EXPECT_EQ(qnn::DataTypeName(out.dtype), "u16");
    ASSERT_TRUE(out.quantization);
    EXPECT_EQ(out.quantization->scale, testing::kSampleScale);
    EXPECT_EQ(out.quantization->offset, -testing::kSampleZeroPoint);
  }
}

void RefusesByName(const qnn::Library& library) {
  const auto binary = SampleBinary(library, "SM8650", {"forward"});
  ASSERT_TRUE(binary.ok()) << binary.status().ToString();
  const Bytes blob = BlobOf(*binary);
  auto error = [&](const Bytes& b, const Bytes& spec, const std::string& soc = "") {
    return Running(SampleProgram(b, spec, {"forward"}), {library.path(), soc}).LoadError();
  };
  EXPECT_HAS(error(blob, SpecOf("SM8650"), "SM8550"), "the program was compiled for SM8650 (HTP v75), not for SM8550 (HTP v73)");
  EXPECT_HAS(error(blob, SpecOf("SM8550")), "the compile spec says SM8550 (HTP v73), but the context binary was made for SM8650 (HTP v75)");
  EXPECT_HAS(error(blob, {}, "SM8550"), "the program was compiled for SM8650 (HTP v75), not for SM8550 (HTP v73)");
  EXPECT_HAS(error(blob, SpecOf("SM8650"), "SM1"), "unknown SoC 'SM1'; there are SM8350, ");
  const Bytes cut(binary->begin(), binary->begin() + static_cast<long>(binary->size() / 2));
  EXPECT_HAS(error(BlobOf(cut), SpecOf("SM8650")), "QnnSystemContext_getMetadata failed with QNN error ");
#if defined(__x86_64__)
  EXPECT_HAS(error(blob, SpecOf("SM8650", true)), "compile it with --qnn-separate-weights");
#endif
  Bytes no_blob = blob;
  no_blob[0] = std::byte{0};
  EXPECT_HAS(error(no_blob, SpecOf("SM8650")), "no QNN context binary: its blob starts with ");
  EXPECT_HAS(error(blob, Bytes(32)), "the compile spec qnn_compile_spec is damaged");

  // Arguments that are not the graph's.
  auto wrong = [&](auto change) {
    pte::ProgramDesc p = SampleProgram(blob, SpecOf("SM8650"), {"forward"});
    change(&p.methods[0]);
    return Running(p, {library.path(), ""}).LoadError();
  };
  auto x = [](pte::MethodDesc* m) -> pte::TensorDesc& { return std::get<pte::TensorDesc>(m->values[1]); };
  EXPECT_HAS(wrong([&](pte::MethodDesc* m) { x(m).dtype = DType::kI16; }), "input 1 is i16, but 'input_1_x' of the graph is u16");
  EXPECT_HAS(wrong([&](pte::MethodDesc* m) { x(m).sizes = {2, 3}; }), "input 1 has 6 elements, but 'input_1_x' of the graph has 4");
  EXPECT_HAS(wrong([](pte::MethodDesc* m) { m->instructions = {pte::DelegateCallDesc{0, {0, 1, 0, 1}}}; }),
             "the graph has 2 inputs and 1 outputs, but the call has 4 arguments");
  const auto two = SampleBinary(library, "SM8650", {"prefill", "decode"});
  ASSERT_TRUE(two.ok());
  EXPECT_HAS(error(BlobOf(*two), SpecOf("SM8650")), "the context binary has no graph 'forward'; it has 'prefill', 'decode'");
}

const qnn::Library* Opened(const std::string& path) {
  auto library = qnn::Library::Open(path);
  EXPECT_TRUE(library.ok()) << library.status().ToString();
  return library.ok() ? *library : nullptr;
}

// ---- Qualcomm's library
class QnnLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("DOVETAIL_QNN_LIB")) GTEST_SKIP() << "no QNN library: set DOVETAIL_QNN_LIB";
    library_ = Opened("");
    ASSERT_TRUE(library_);
  }
  const qnn::Library* library_ = nullptr;
};
TEST_F(QnnLibrary, AddsUpInTwoMethods) { AddsUpInTwoMethods(*library_); }
TEST_F(QnnLibrary, DescribesBinaries) { DescribesBinaries(*library_); }
TEST_F(QnnLibrary, RefusesByName) { RefusesByName(*library_); }
TEST_F(QnnLibrary, ABinaryThatIsCutOffIsRefused) {
  const auto binary = SampleBinary(*library_, "SM8650", {"forward"});
  ASSERT_TRUE(binary.ok());
  for (size_t i = 0; i < 64; ++i) {
    Bytes damaged = *binary;
    damaged.resize(binary->size() * i / 64);
    EXPECT_FALSE(qnn::ReadBinaryInfo(*library_, damaged).ok()) << i;
  }
}

// ---- ours
class FakeQnn : public ::testing::Test {
 protected:
  void SetUp() override {
    void* handle = dlopen(DOVETAIL_FAKE_QNN "/libQnnHtp.so", RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(handle) << dlerror();
    control_ = reinterpret_cast<FakeQnnControl* (*)()>(dlsym(handle, "FakeQnn_control"))();
    get_providers_ = reinterpret_cast<qnn::abi::GetProviders>(dlsym(handle, "QnnInterface_getProviders"));
    *control_ = {};
    TakeVersions();
    library_ = Opened(DOVETAIL_FAKE_QNN);
    ASSERT_TRUE(library_);
  }
  // The interface takes the versions in control_ when it is asked for.
  void TakeVersions() {
    const qnn::abi::Interface** providers = nullptr;
    uint32_t count = 0;
    EXPECT_EQ(get_providers_(&providers, &count), 0u);
  }
  void TearDown() override {
    EXPECT_EQ(control_->handles, 0) << "not freed";
    EXPECT_EQ(control_->fail_call, nullptr) << control_->fail_call << " was not called";
  }
  void Fail(const char* call, uint64_t error, const char* log = nullptr) {
    control_->fail_call = call;
    control_->fail_error = error;
    control_->log = log;
  }
  // Opens the library as if it were installed elsewhere, with what control_ says of it by now.
  std::string OpenError() {
    const std::string test = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / StrCat("qnn_", test, "_", copies_++);
    std::filesystem::create_directories(folder);
    std::filesystem::remove(folder / "libQnnHtp.so");
    std::filesystem::create_symlink(DOVETAIL_FAKE_QNN "/libQnnHtp.so", folder / "libQnnHtp.so");
    auto library = qnn::Library::Open(folder.string());
    EXPECT_FALSE(library.ok());
    return library.ok() ? "" : library.status().ToString();
  }
  Bytes Binary(const char* graph = "forward") {
    auto binary = SampleBinary(*library_, "SM8650", {graph});
    EXPECT_TRUE(binary.ok()) << binary.status().ToString();
    return binary.ok() ? *binary : Bytes();
  }
  Running Sample(const Bytes& binary) {
    return Running(SampleProgram(BlobOf(binary), SpecOf("SM8650"), {"forward"}), {.library = DOVETAIL_FAKE_QNN, .soc = ""});
  }

  FakeQnnControl* control_ = nullptr;
  qnn::abi::GetProviders get_providers_ = nullptr;
  const qnn::Library* library_ = nullptr;
  int copies_ = 0;
};

TEST_F(FakeQnn, AddsUpInTwoMethods) {
  AddsUpInTwoMethods(*library_);
  EXPECT_EQ(control_->contexts_from_binary, 1u) << "two methods and two instances of a program share a context";
}
TEST_F(FakeQnn, DescribesBinaries) { DescribesBinaries(*library_); }
TEST_F(FakeQnn, RefusesByName) { RefusesByName(*library_); }

TEST_F(FakeQnn, EveryCallThatFailsWhilePreparingIsNamed) {
  for (const char* call : {"QnnLog_create", "QnnBackend_create", "QnnDevice_create", "QnnContext_create", "QnnGraph_create", "QnnTensor_createGraphTensor",
                           "QnnGraph_addNode", "QnnGraph_finalize", "QnnContext_getBinarySize", "QnnContext_getBinary"}) {
    Fail(call, 1002, "the heap is used up");
    auto binary = SampleBinary(*library_, "SM8650", {"forward"});
    ASSERT_FALSE(binary.ok()) << call;
    EXPECT_HAS(binary.status().ToString(), StrCat(call, " failed with QNN error 1002 (Memory allocation related error)"));
    if (std::string_view(call) != "QnnLog_create") {
      EXPECT_HAS(binary.status().ToString(), ": the heap is used up");
    }
    EXPECT_EQ(control_->handles, 0) << call;
  }
}

TEST_F(FakeQnn, EveryCallThatFailsWhileLoadingIsNamed) {
  const Bytes binary = Binary();
  for (const char* call : {"QnnSystemContext_create", "QnnSystemContext_getMetadata", "QnnLog_create", "QnnBackend_create", "QnnDevice_create",
                           "QnnContext_createFromBinary", "QnnGraph_retrieve"}) {
    {
      Running r = Sample(binary);
      Fail(call, 1002);
      const std::string error = r.LoadError();
      const std::string of = std::string_view(call) == "QnnGraph_retrieve" ? " of 'forward'" : "";
      EXPECT_HAS(error, StrCat(call, of, " failed with QNN error 1002 (Memory allocation related error)"));
      EXPECT_HAS(error, "instruction 0: QnnBackend in method 'forward'");
      EXPECT_TRUE(r.Load("forward")) << call << ": it fails once, so loading again works";
    }
    EXPECT_EQ(control_->handles, 0) << call;
  }
}

TEST_F(FakeQnn, AnExecutionThatFailsIsNamedAndTheNextOneRuns) {
  Running r = Sample(Binary());
  Method* method = r.Load("forward");
  ASSERT_TRUE(method);
  Fail("QnnGraph_execute", 6031, "node 7 has crashed");
  const Status s = r.Run(method, {100, 100, 100, 100});
  ASSERT_FALSE(s.ok());
  EXPECT_HAS(s.ToString(), "QnnGraph_execute of 'forward' failed with QNN error 6031: node 7 has crashed");
  EXPECT_HAS(s.ToString(), "QnnBackend in method 'forward'");
  EXPECT_EQ(r.Call(method, {100, 100, 100, 101}), (Row{100, 101, 102, 104}));
}

TEST_F(FakeQnn, ADamagedBinaryIsRefused) {
  const Bytes binary = Binary();
  for (size_t i = 0; i < binary.size(); ++i) {
    Bytes damaged = binary;
    damaged[i] ^= std::byte{0x40};
    EXPECT_HAS(Sample(damaged).LoadError(), "QnnSystemContext_getMetadata failed with QNN error 5001 (Invalid binary)");
  }
}

TEST_F(FakeQnn, ABinaryOfANewerLibraryIsRefused) {
  auto made_by = [&](const char* build, qnn::abi::Version core, qnn::abi::Version backend) {
    const FakeQnnControl kept = *control_;
    control_->build = build, control_->core = core, control_->backend = backend;
    Bytes binary = Binary();
    control_->build = kept.build, control_->core = kept.core, control_->backend = kept.backend;
    return binary;
  };
  EXPECT_HAS(Sample(made_by("v2.52.0.9", {2, 40, 0}, {5, 51, 0})).LoadError(),
             "made by QNN SDK v2.52.0.9 (core 2.40.0, HTP 5.51.0), which is newer than the library");
  EXPECT_HAS(Sample(made_by("v2.51.0.1", {2, 41, 0}, {5, 51, 0})).LoadError(), "(core 2.41.0, HTP 5.51.0), which is newer");
  EXPECT_HAS(Sample(made_by("", {2, 40, 0}, {5, 52, 0})).LoadError(), "made by QNN an unnamed SDK (core 2.40.0, HTP 5.52.0), which is newer");
  EXPECT_TRUE(Sample(made_by("v2.51.3.1", {2, 40, 7}, {5, 51, 1})).Load("forward"));
  EXPECT_TRUE(Sample(made_by("v2.47.0.1", {2, 36, 0}, {5, 47, 0})).Load("forward"));
}

TEST_F(FakeQnn, OtherLibrariesAndVersionsAreRefused) {
  control_->backend_id = 3;
  EXPECT_HAS(OpenError(), "it is the library of another backend (FAKE), not HTP's");
  *control_ = {};
  control_->core = {3, 0, 0};
  EXPECT_HAS(OpenError(), "it has QNN core interface 3.0.0; this Dovetail knows versions 2.x");
  *control_ = {};
  control_->backend = {6, 1, 0};
  EXPECT_HAS(OpenError(), "its HTP backend interface is 6.1.0; this Dovetail knows versions 5.x");
  *control_ = {};
  control_->no_providers = true;
  EXPECT_HAS(OpenError(), "it offers no interface");
  *control_ = {};
  Fail("QnnBackend_getBuildId", 1002);
  EXPECT_HAS(OpenError(), "QnnBackend_getBuildId failed with QNN error 1002");
  EXPECT_HAS(qnn::Library::Open("/nowhere").status().ToString(), "no QNN library: there is no file or folder '/nowhere'");
  EXPECT_HAS(qnn::Library::Open(::testing::TempDir()).status().ToString(), "has no libQnnHtp.so");
}

TEST_F(FakeQnn, ALibraryOfAnOlderBackendGetsTheSocWhereItLooksForIt) {
  control_->backend.minor = 37;
  TakeVersions();
  auto older = SampleBinary(*library_, "SM8650", {"forward"});
  ASSERT_TRUE(older.ok()) << older.status().ToString();
  EXPECT_EQ(qnn::ReadBinaryInfo(*library_, *older)->soc_model, 57u);
}

TEST_F(FakeQnn, WhatTheSystemLibrarySaysIsChecked) {
  const Bytes binary = Binary();
  auto error = [&](auto FakeQnnControl::*field, auto value) {
    *control_ = {};
    control_->*field = value;
    const auto info = qnn::ReadBinaryInfo(*library_, binary);
    const std::string text = info.ok() ? "" : info.status().ToString();
    *control_ = {};
    return text;
  };
  EXPECT_HAS(error(&FakeQnnControl::info_version, 4u), "describes context binaries by version 4; this Dovetail knows version 3");
  EXPECT_HAS(error(&FakeQnnControl::graph_version, 4u), "describes graphs by version 4");
  EXPECT_HAS(error(&FakeQnnControl::tensor_version, 3u), "describes a tensor by version 3");
  EXPECT_HAS(error(&FakeQnnControl::binary_backend_id, 4u), "for QNN's backend number 4");
  EXPECT_HAS(error(&FakeQnnControl::num_graphs, 1u << 30), "has 1073741824 graphs");
  EXPECT_HAS(error(&FakeQnnControl::num_inputs, 1u << 30), "has 1073741824 inputs");
  EXPECT_HAS(error(&FakeQnnControl::rank, 1u << 30), "has 1073741824 dims");
  EXPECT_HAS(error(&FakeQnnControl::null_graphs, true), "has 1 graphs");
  EXPECT_HAS(error(&FakeQnnControl::null_inputs, true), "has 2 inputs");
  EXPECT_HAS(error(&FakeQnnControl::null_name, true), "a tensor of the context binary has no name");
  EXPECT_EQ(error(&FakeQnnControl::tensor_version, 2u), "");
}

TEST_F(FakeQnn, InstancesRunInThreads) {
  Running r = Sample(Binary());
  std::vector<std::thread> threads;
  std::vector<Row> totals(4);
  for (size_t i = 0; i < totals.size(); ++i)
    threads.emplace_back([&, i] {
      auto instance = r.program->CreateInstance({.threads = 1, .delegates = kDelegates});
      Method* method = *(*instance)->LoadMethod("forward");
      for (int n = 0; n < 50; ++n) totals[i] = r.Call(method, {101, 100, 100, 100});
    });
  for (std::thread& t : threads) t.join();
  for (const Row& total : totals) EXPECT_EQ(total, (Row{150, 101, 102, 103}));
}

TEST_F(FakeQnn, ProgramsEndWhileOthersRun) {
  const Bytes binary = Binary();
  Running r = Sample(binary);
  Method* method = r.Load("forward");
  std::atomic<bool> done = false;
  std::thread running([&] {
    while (!done) r.Call(method, {100, 100, 100, 100});
  });
  for (int n = 0; n < 50; ++n) EXPECT_TRUE(Sample(binary).Load("forward"));
  done = true;
  running.join();
  EXPECT_EQ(control_->overlapping_calls, 0u);
}

TEST_F(FakeQnn, OneLibraryByTwoPathsIsOne) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "qnn_elsewhere";
  std::filesystem::create_directories(folder);
  std::filesystem::remove(folder / "libQnnHtp.so");
  std::filesystem::create_symlink(DOVETAIL_FAKE_QNN "/libQnnHtp.so", folder / "libQnnHtp.so");
  EXPECT_EQ(Opened(folder.string()), library_) << "two mutexes for one library";
}

TEST(QnnDelegate, AProgramWithoutTheLibrarySaysWhatIsMissing) {
  Running r(SampleProgram(BlobOf(Bytes(64)), SpecOf("SM8650"), {"forward"}), {.library = "/nowhere/libQnnHtp.so", .soc = ""});
  const std::string error = r.LoadError();
  EXPECT_HAS(error, "no QNN library: there is no file or folder '/nowhere/libQnnHtp.so'");
  EXPECT_HAS(error, "while loading method 'forward' of 'sample.pte'");
}

}  // namespace
}  // namespace dovetail
