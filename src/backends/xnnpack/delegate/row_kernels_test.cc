#include "backends/xnnpack/delegate/row_kernels.h"

#include <gtest/gtest.h>
#include <xnnpack.h>

#include <map>

#include "backends/xnnpack/delegate/allocator.h"

namespace dovetail {
namespace {

TEST(RowKernels, GiveTheBitsThatXnnpackGives) {
  size_t count = 0;
  const RowKernelPair* pairs = RowKernels(&count);
  if (count == 0) GTEST_SKIP() << "no row kernels for this processor, or XNNPACK's cannot be linked";
  for (size_t i = 0; i < count; ++i) EXPECT_TRUE(SameResults(pairs[i])) << pairs[i].name;
}

TEST(RowKernels, TheComparisonFindsADifference) {
  size_t count = 0;
  const RowKernelPair* pairs = RowKernels(&count);
  if (count == 0) GTEST_SKIP() << "no row kernels for this processor, or XNNPACK's cannot be linked";
  static RowKernel* ours;
  for (size_t i = 0; i < count; ++i) {
    RowKernelPair wrong = pairs[i];
    ours = wrong.ours;
    wrong.ours = [](size_t rows, size_t columns, size_t inner, const int8_t* a, size_t a_stride, const void* w, float* c, size_t c_row_stride,
                    size_t c_column_stride, const void* params, const void* quantization) {
      ours(rows, columns, inner, a, a_stride, w, c, c_row_stride, c_column_stride, params, quantization);
      c[columns - 1] += 0.001f;
    };
    EXPECT_FALSE(SameResults(wrong)) << wrong.name;
  }
}

// XNNPACK has one kernel in each table, of several that it could have there.
TEST(RowKernels, AreWhereXnnpackFindsThem) {
  size_t count = 0;
  const RowKernelPair* pairs = RowKernels(&count);
  if (count == 0) GTEST_SKIP() << "no row kernels for this processor, or XNNPACK's cannot be linked";
  ASSERT_TRUE(InitializeXnnpack().ok());
  std::map<const void*, bool> found;
  for (size_t i = 0; i < count; ++i) {
    RowKernel* const* table = static_cast<RowKernel* const*>(pairs[i].table());
    ASSERT_NE(table, nullptr);
    for (size_t word = 0; word < 8; ++word) {
      EXPECT_NE(table[word], pairs[i].theirs) << pairs[i].name;
      found[table] |= table[word] == pairs[i].ours;
    }
  }
  for (const auto& [table, ours] : found) EXPECT_TRUE(ours);
}

}  // namespace
}  // namespace dovetail
