#include "backends/xnnpack/delegate/float_kernels.h"

#include <gtest/gtest.h>

#include <limits>

#include "backends/xnnpack/delegate/allocator.h"

namespace dovetail {
namespace {

constexpr const char* kNone = "no float kernel for this processor, or XNNPACK's cannot be linked";
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(FloatKernels, GiveTheBitsThatXnnpackGives) {
  const FloatKernelPair* pair = FloatKernels();
  if (!pair) GTEST_SKIP() << kNone;
  uint32_t seed = 1;
  for (size_t rows = 1; rows <= pair->our_rows; ++rows)
    for (size_t columns = 1; columns <= 97; columns += 2)
      for (const size_t inner : {1, 2, 3, 7, 16, 33, 70})
        for (const float limit : {kInfinity, 0.75f})
          ASSERT_TRUE(SameResults(*pair, {rows, columns, inner, -limit, limit, seed++})) << rows << "x" << columns << ", inner " << inner << ", to " << limit;
  for (const size_t columns : {16, 32, 48, 64, 96})
    for (size_t inner = 1; inner <= 70; ++inner) EXPECT_TRUE(SameResults(*pair, {25, columns, inner, 0, kInfinity, seed++})) << columns << ", inner " << inner;
  // Several calls.
  EXPECT_TRUE(SameResults(*pair, {128, 384, 300, -kInfinity, kInfinity}));
}

TEST(FloatKernels, TheComparisonFindsADifference) {
  const FloatKernelPair* pair = FloatKernels();
  if (!pair) GTEST_SKIP() << kNone;
  static FloatKernel* ours;
  ours = pair->ours;
  FloatKernelPair wrong = *pair;
  wrong.ours = [](size_t rows, size_t columns, size_t inner, const float* a, size_t a_stride, const float* w, float* c, size_t c_row_stride,
                  size_t c_column_stride, const void* params) {
    ours(rows, columns, inner, a, a_stride, w, c, c_row_stride, c_column_stride, params);
    c[0] = -c[0];
  };
  EXPECT_FALSE(SameResults(wrong));
}

TEST(FloatKernels, AreWhereXnnpackFindsThem) {
  const FloatKernelPair* pair = FloatKernels();
  if (!pair) GTEST_SKIP() << kNone;
  ASSERT_TRUE(InitializeXnnpack().ok());
  EXPECT_NE(FindFloatKernel(pair->ours), nullptr);
}

}  // namespace
}  // namespace dovetail
