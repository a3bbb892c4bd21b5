// The QNN delegate on a library: on the provider of our own always, and on Qualcomm's where DOVETAIL_QNN_LIB names it.
#include "backends/qnn/delegate/delegate.h"

#include <atomic>
#include <cstdlib>
#include <thread>

#include "backends/qnn/api/binary_info.h"
#include "qnn/fake_qnn.h"

namespace dovetail {
namespace {

using namespace testing;

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
TEST_F(FakeQnn, AddsUpInTwoMethods) {
  AddsUpInTwoMethods(*library_);
  EXPECT_EQ(control_->contexts_from_binary, 1u) << "two methods and two instances of a program share a context";
}
TEST_F(FakeQnn, DescribesBinaries) { DescribesBinaries(*library_); }
TEST_F(FakeQnn, RefusesByName) { RefusesByName(*library_); }

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
