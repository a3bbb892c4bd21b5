// Rounding of weights that compensates its error on calibration data.
//
// Frantar et al., "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained Transformers" (2022): columns are rounded one after the
// other, and what rounding a column changes of the layer's result on the data is made up for, as far as they can, by the columns not yet rounded.
// Scales are chosen before: they do not change while columns are rounded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "ops/quantization.h"
#include "quant/weights.h"

namespace dovetail {

// The sum of x x^T over rows x of a layer's input, [width, width] row-major, symmetric.
class InputMoments {
 public:
  explicit InputMoments(int64_t width) : width_(width), sums_(static_cast<size_t>(width * width), 0), totals_(static_cast<size_t>(width), 0) {}
  // `rows` rows of `width` elements. Rows with a value that is not finite are left out.
  void Add(const float* x, int64_t rows, struct pthreadpool* pool = nullptr);
  // The same of finite `columns`, [width, rows].
  void AddColumns(const float* columns, int64_t rows, struct pthreadpool* pool = nullptr);
  // Of the same rows less their mean: what is left of an error once the layer's bias has made up for its mean.
  InputMoments Centered() const;
  int64_t width() const { return width_; }
  int64_t rows() const { return rows_; }
  const std::vector<float>& sums() const { return sums_; }
  // Adding shards in any order gives the same up to rounding.
  void Merge(const InputMoments& other);

 private:
  int64_t width_, rows_ = 0;
  std::vector<float> sums_;
  std::vector<double> totals_;  // the sum of x
};

// What rounding needs of an input, for every weight that takes it: an order of the columns and the factor of the inverse of their moments.
class Compensation {
 public:
  explicit Compensation(const InputMoments& moments);
  int64_t width() const { return static_cast<int64_t>(order_.size()); }
  const std::vector<float>& importance() const { return importance_; }  // mean squares up to a factor, by column
  const std::vector<int64_t>& order() const { return order_; }          // columns that matter most first
  const std::vector<float>& factor() const { return factor_; }          // U with H^-1 = U^T U, H the damped moments in that order

 private:
  std::vector<float> importance_, factor_;
  std::vector<int64_t> order_;
};

// How the scales of a row's blocks may be.
enum class BlockScales { kFree, kExpanded };  // kExpanded: as in block_expansion.h

// What the rows of a weight are rounded to.
struct RoundingGrid {
  IntegerRange integers;
  int64_t block;                  // columns that share a scale; divides the width
  std::span<const float> scales;  // [rows, width / block]
};
// Rounds rows [first, first + rows) of a finite weight, all dims but the first being columns, to integers[rows, width]. `errors`, where it is not empty, gets the
// sum of squares of each row's error on the damped inputs. Rows go to the threads of `pool`, which may be null; the result does not depend on them.
void RoundRows(const Constant& weight, int64_t first, int64_t rows, const RoundingGrid& grid, const Compensation& compensation, int8_t* integers,
               std::span<double> errors = {}, struct pthreadpool* pool = nullptr);

// Rounds a finite matrix of that width to blocks of 4-bit integers; `block` divides the width. The scale of each block is the one of several that errs least
// when each column's error counts with the mean square of its input. Threads as above.
PackedBlocks RoundCompensating(const Constant& weight, int block, const Compensation& compensation, struct pthreadpool* pool = nullptr,
                               BlockScales kind = BlockScales::kFree);

}  // namespace dovetail
