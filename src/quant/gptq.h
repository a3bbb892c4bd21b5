// Rounding of 4-bit weights that compensates its error on calibration data.
//
// Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers" (2022): columns are rounded one after the
// other, and what rounding a column changes of the layer's result on the data is made up for, as far as they can, by the columns not yet rounded.
// The scale of each block is the one of several that errs least when each column's error counts with the mean square of its input.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "quant/weights.h"

namespace dovetail {

// The sum of x x^T over rows x of a layer's input, [width, width] row-major, symmetric.
class InputMoments {
 public:
  explicit InputMoments(int64_t width) : width_(width), sums_(static_cast<size_t>(width * width), 0) {}
  // `rows` rows of `width` elements. Rows with a value that is not finite are left out.
  void Add(const float* x, int64_t rows);
  int64_t width() const { return width_; }
  int64_t rows() const { return rows_; }
  const std::vector<float>& sums() const { return sums_; }
  // Adding shards in any order gives the same up to rounding.
  void Merge(const InputMoments& other);

 private:
  int64_t width_, rows_ = 0;
  std::vector<float> sums_;
};

struct PackedBlocks {
  std::vector<uint8_t> data;     // [rows, width/2], low nibble first, 8 standing for zero
  std::vector<uint16_t> scales;  // bf16 [rows, width/block]
};

// Rounds a finite matrix to blocks of 4-bit integers; `block` divides its width, which is that of the moments.
PackedBlocks RoundCompensating(FloatRows& weight, int block, const InputMoments& moments);

}  // namespace dovetail
