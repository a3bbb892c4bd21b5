#include "backends/xnnpack/delegate/convolution_check.h"

#include <gtest/gtest.h>

#include "backends/xnnpack/delegate/allocator.h"

namespace dovetail {
namespace {

TEST(Convolutions, AreComputedAsTheyShould) {
  ASSERT_TRUE(InitializeXnnpack().ok());
  const Status status = CheckConvolutions();
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace dovetail
