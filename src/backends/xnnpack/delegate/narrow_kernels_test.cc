#include "backends/xnnpack/delegate/narrow_kernels.h"

#include <gtest/gtest.h>

#include "backends/xnnpack/delegate/allocator.h"

namespace dovetail {
namespace {

TEST(NarrowKernels, GiveTheBitsThatXnnpackGives) {
  ASSERT_TRUE(InitializeXnnpack().ok());
  EXPECT_TRUE(NarrowKernelsAgree());
  EXPECT_EQ(UseNarrowKernels(), 0) << "they were there already, or XNNPACK has no kernels that they could replace";
}

}  // namespace
}  // namespace dovetail
