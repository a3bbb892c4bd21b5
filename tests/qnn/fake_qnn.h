// A test on the provider of our own (fake_provider.h).
#pragma once

#include <dlfcn.h>

#include <filesystem>

#include "qnn/fake_provider.h"
#include "qnn/running.h"

namespace dovetail::testing {

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

}  // namespace dovetail::testing
