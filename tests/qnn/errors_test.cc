// What the QNN delegate says when the library fails: on the provider of our own, with all its ways to.
#include "backends/qnn/api/binary_info.h"
#include "qnn/fake_qnn.h"

namespace dovetail {
namespace {

using namespace testing;

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

}  // namespace
}  // namespace dovetail
