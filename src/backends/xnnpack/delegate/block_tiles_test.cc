#include "backends/xnnpack/delegate/block_tiles.h"

#include <gtest/gtest.h>

#include "backends/xnnpack/delegate/allocator.h"

namespace dovetail {
namespace {

constexpr const char* kNone = "no AMX on this processor, or XNNPACK's kernels cannot be linked";

TEST(BlockTiles, GiveTheBitsThatXnnpackGives) {
  ASSERT_TRUE(InitializeXnnpack().ok());
  const BlockTiles tiles = FindBlockTiles();
  if (!tiles.ours) GTEST_SKIP() << kNone;
  uint32_t seed = 1;
  for (size_t rows = 1; rows <= kBlockTileRows; ++rows)
    for (size_t columns = 1; columns <= 50; columns += rows % 3 + 1)
      ASSERT_TRUE(SameResults(tiles, {rows, columns, 64, 32, seed++})) << rows << " rows, " << columns << " columns";
  for (const size_t block : {32, 64, 96, 128, 256, 1024, 2048})
    for (const size_t blocks : {1, 2, 3, 31, 33})
      ASSERT_TRUE(SameResults(tiles, {seed % kBlockTileRows + 1, 20, block * blocks, block, seed++})) << blocks << " blocks of " << block;
}

TEST(BlockTiles, TheComparisonFindsADifference) {
  ASSERT_TRUE(InitializeXnnpack().ok());
  BlockTiles tiles = FindBlockTiles();
  if (!tiles.ours) GTEST_SKIP() << kNone;
  static RowKernel* ours;
  ours = tiles.ours;
  tiles.ours = [](size_t rows, size_t columns, size_t inner, const int8_t* a, size_t a_stride, const void* w, float* c, size_t c_row_stride,
                  size_t c_column_stride, const void* params, const void* quantization) {
    ours(rows, columns, inner, a, a_stride, w, c, c_row_stride, c_column_stride, params, quantization);
    reinterpret_cast<float*>(reinterpret_cast<char*>(c) + (rows - 1) * c_row_stride)[columns - 1] += 1;
  };
  EXPECT_FALSE(SameResults(tiles));
}

}  // namespace
}  // namespace dovetail
