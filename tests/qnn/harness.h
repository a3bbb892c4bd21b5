// Programs of one module on Qualcomm's library. Tests that need it are skipped where DOVETAIL_QNN_LIB does not name it.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "backends/qnn/backend.h"
#include "dovetail/program.h"

namespace dovetail::testing {

inline constexpr const char* kQnnTestSoc = "SM8650";

class OnQnn : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::getenv("DOVETAIL_QNN_LIB")) GTEST_SKIP() << "no QNN library: set DOVETAIL_QNN_LIB";
    const auto library = qnn::Library::Open("");
    ASSERT_TRUE(library.ok()) << library.status().ToString();
    const auto device = qnn::Device::Create(**library, **qnn::FindSoc(kQnnTestSoc));
    ASSERT_TRUE(device.ok()) << device.status().ToString();
    backend_ = MakeQnnBackend(*device);
    backend_.worthwhile = [](const Module&, const Graph&, std::span<const NodeId>) { return true; };
  }
  Backend backend_;  // takes what it can, however little
};

struct QnnProgram {
  std::unique_ptr<Program> program;
  std::unique_ptr<Instance> instance;
};
// Partitioned for the backend and the cpu, emitted, and loaded.
Result<QnnProgram> StartOnQnn(Module& module, const Backend& backend);

}  // namespace dovetail::testing
