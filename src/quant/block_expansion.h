// 4-bit weights whose scales of blocks are whole multiples of one scale for the row, as fixed-point hardware wants them (Qualcomm's block expansion, "LPBQ").
#pragma once

#include <span>
#include <vector>

#include "quant/weights.h"

namespace dovetail {

inline constexpr int kMostMultiple = 16;

// A matrix [N,K], K a multiple of `block`: of each row the scale s, of 4 significant bits, and of each block the multiple m of 1 to 16 that err least. The
// scales s * m are exact in bf16. Fails on values that are not finite.
Result<PackedBlocks> ExpandedBlocks(const Constant& matrix, int block);

// The scales of one row's blocks chosen like that, where each column's squared error counts `importance` times (empty: once). The row is finite.
std::vector<float> ExpandedScales(std::span<const float> row, std::span<const float> importance, int block);

// One scale for each index of `axis` for integers -8 to 7: of max|w| / 7 and parts of it the one that errs least. Fails on values that are not finite.
Result<std::vector<float>> FourBitScales(const Constant& weight, int axis);

}  // namespace dovetail
