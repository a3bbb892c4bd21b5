#include "backends/xnnpack/delegate/block_weights_check.h"

#include <gtest/gtest.h>

#include "backends/xnnpack/delegate/allocator.h"

namespace dovetail {
namespace {

TEST(BlockWeights, AreMultipliedAsTheyShould) {
  ASSERT_TRUE(InitializeXnnpack().ok());
  const Status status = CheckBlockWeights();
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace dovetail
