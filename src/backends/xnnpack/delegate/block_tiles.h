// A faster kernel for many rows and blocks of 4-bit weights than XNNPACK's own, over its packed weights.
//
// XNNPACK has kernels with the tiles of AMX for int8 weights and for one scale per channel, but not for blocks, so that a prefill took longer with 4 bits than
// with 8. This has: 16 columns' weights are widened to bytes once for 32 rows, and each block's sums are scaled as they leave the tile.
#pragma once

#include "backends/xnnpack/delegate/row_kernels.h"

namespace dovetail {

inline constexpr size_t kBlockTileRows = 32;

// Adds it to XNNPACK's table of kernels, where the processor and the system have AMX and a sample gives what XNNPACK's kernel for 8 rows does. Before the
// first operator is created.
void UseBlockTiles();

// For tests and benchmarks: as XNNPACK calls its kernels, for up to 8 and up to kBlockTileRows rows. Null where it can't be used.
struct BlockTiles {
  RowKernel *theirs, *ours;
};
BlockTiles FindBlockTiles();

// A product of `rows` rows of `inner` int8 with weights in blocks of `block`.
struct BlockSample {
  size_t rows, columns, inner, block;
  uint32_t seed = 1;
};
// Whether both give the same bits on it.
bool SameResults(const BlockTiles& tiles, const BlockSample& sample);
// On samples of several sizes.
bool SameResults(const BlockTiles& tiles);

}  // namespace dovetail
