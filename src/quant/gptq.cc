#include "quant/gptq.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numeric>

#include "kernels/gemm.h"
#include "kernels/parallel.h"
#include "ops/quantization.h"
#include "quant/block_expansion.h"

namespace dovetail {
namespace {

constexpr int64_t kColumns = 64;      // rounded between two updates of all the columns after them
constexpr double kDamping = 0.01;     // of the mean of the diagonal, as in the paper; more with fewer rows than columns, which show less
constexpr double kShrinkage = 0.3;    // of what is best for the moments themselves: with all of it, inputs that depend on each other lose more than others gain
constexpr int64_t kRowsAtOnce = 64;   // of the weight

// The lower Cholesky factor of the lower triangle of a, in place, by blocks of columns. A diagonal that rounding has left below `least` is that.
void Factorize(float* a, int64_t n, float least) {
  std::vector<float> negated;
  for (int64_t begin = 0; begin < n; begin += kColumns) {
    const int64_t end = std::min(n, begin + kColumns), width = end - begin;
    for (int64_t j = begin; j < end; ++j) {
      float* row_j = a + j * n;
      double d = static_cast<double>(row_j[j]);
      for (int64_t k = begin; k < j; ++k) d -= static_cast<double>(row_j[k]) * static_cast<double>(row_j[k]);
      row_j[j] = static_cast<float>(std::sqrt(std::max(d, static_cast<double>(least))));
      for (int64_t i = j + 1; i < n; ++i) {
        float* row_i = a + i * n;
        double sum = static_cast<double>(row_i[j]);
        for (int64_t k = begin; k < j; ++k) sum -= static_cast<double>(row_i[k]) * static_cast<double>(row_j[k]);
        row_i[j] = static_cast<float>(sum / static_cast<double>(row_j[j]));
      }
    }
    if (end == n) break;
    negated.resize(static_cast<size_t>((n - end) * width));
    for (int64_t i = end; i < n; ++i)
      for (int64_t k = 0; k < width; ++k) negated[static_cast<size_t>((i - end) * width + k)] = -a[i * n + begin + k];
    // Blocks of rows, each as far as its own diagonal block.
    for (int64_t first = end; first < n; first += kColumns) {
      const int64_t rows = std::min(kColumns, n - first);
      MultiplyTransposed({rows, first + rows - end, width, negated.data() + (first - end) * width, width, a + end * n + begin, n, a + first * n + end, n});
    }
  }
}

// The inverse of a lower triangular matrix, in place, by blocks of rows: X[I] = L[I][I]^-1 (E[I] - L[I][<I] X[<I]).
void InvertTriangular(float* l, int64_t n) {
  std::vector<float> negated, result;
  for (int64_t begin = 0; begin < n; begin += kColumns) {
    const int64_t end = std::min(n, begin + kColumns), rows = end - begin;
    result.assign(static_cast<size_t>(rows * end), 0);
    for (int64_t r = 0; r < rows; ++r) result[static_cast<size_t>(r * end + begin + r)] = 1;
    if (begin > 0) {
      negated.resize(static_cast<size_t>(rows * begin));
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t k = 0; k < begin; ++k) negated[static_cast<size_t>(r * begin + k)] = -l[(begin + r) * n + k];
      MultiplyAdd({rows, begin, begin, negated.data(), begin, l, n, result.data(), end});
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* row = result.data() + r * end;
      for (int64_t k = 0; k < r; ++k) {
        const float factor = l[(begin + r) * n + begin + k];
        const float* known = result.data() + k * end;
        for (int64_t c = 0; c < end; ++c) row[c] -= factor * known[c];
      }
      const float inverse = 1 / l[(begin + r) * n + begin + r];
      for (int64_t c = 0; c < end; ++c) row[c] *= inverse;
    }
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(result.data() + r * end, end, l + (begin + r) * n);
      std::fill(l + (begin + r) * n + begin + r + 1, l + (begin + r) * n + end, 0.0f);
    }
  }
}

// What is added to the diagonal. The moments of few rows show products of inputs that are chance, and rounding that compensates for these is
// worse than rounding to nearest; so the fewer the rows and the less the inputs depend on each other, the more is added. One measure is the
// shrinkage of Chen, Wiesel, Eldar and Hero, "Shrinkage Algorithms for MMSE Covariance Estimation" (2010), equation 23 (OAS).
double Damping(const InputMoments& moments) {
  const double n = static_cast<double>(moments.width()), rows = static_cast<double>(std::max<int64_t>(moments.rows(), 1));
  double trace = 0, squares = 0;  // of S and of S S
  for (size_t i = 0; i < moments.sums().size(); ++i) squares += static_cast<double>(moments.sums()[i]) * static_cast<double>(moments.sums()[i]);
  for (int64_t i = 0; i < moments.width(); ++i) trace += static_cast<double>(moments.sums()[static_cast<size_t>(i * moments.width() + i)]);
  if (!(trace > 0)) return kDamping;
  const double apart = squares - trace * trace / n;
  const double share = ((1 - 2 / n) * squares + trace * trace) / ((rows + 1 - 2 / n) * apart), most = 0.999;
  const double limited = apart > 0 && share < most ? share : most;
  return std::max(kDamping * std::max(1.0, n / rows), kShrinkage * limited / (1 - limited)) * trace / n;
}

// The upper triangular U of H^-1 = U^T U for the damped H, by the Cholesky factor of H in reversed order: with J the reversal, J H J = L L^T gives
// U = J L^-1 J. Columns of inputs that are always zero have only the damping on their diagonal.
std::vector<float> InverseFactor(const InputMoments& moments, const std::vector<int64_t>& order, double damping) {
  const int64_t n = moments.width();
  std::vector<float> l(static_cast<size_t>(n * n), 0);
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c <= r; ++c)
      l[static_cast<size_t>(r * n + c)] =
          moments.sums()[static_cast<size_t>(order[static_cast<size_t>(n - 1 - r)] * n + order[static_cast<size_t>(n - 1 - c)])] + (r == c ? static_cast<float>(damping) : 0);
  Factorize(l.data(), n, static_cast<float>(damping * 1e-3));
  InvertTriangular(l.data(), n);
  std::vector<float> u(static_cast<size_t>(n * n), 0);
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = r; c < n; ++c) u[static_cast<size_t>(r * n + c)] = l[static_cast<size_t>((n - 1 - r) * n + n - 1 - c)];
  return u;
}

constexpr IntegerRange kFourBits = {-8, 7};

float BestScale(std::span<const float> w, std::span<const float> importance) {
  const float whole = BlockScale(w);
  if (!(whole > 0)) return 1;
  uint16_t best = 0;
  double least = INFINITY;
  for (int step = 0; step <= 20; ++step) {
    const uint16_t candidate = FloatToBFloat16(std::max(whole * (1.05f - 0.025f * static_cast<float>(step)), FLT_MIN));
    const float scale = BFloat16ToFloat(candidate);
    double error = 0;
    for (size_t i = 0; i < w.size(); ++i) {
      const double e = static_cast<double>(w[i] - static_cast<float>(QuantizeElement(w[i], scale, 0, kFourBits)) * scale);
      error += e * e * static_cast<double>(importance[i]);
    }
    if (error < least) {
      least = error;
      best = candidate;
    }
  }
  return BFloat16ToFloat(best);
}

// Of each block of a row.
std::vector<float> BestScales(std::span<const float> row, std::span<const float> importance, int block) {
  const size_t size = static_cast<size_t>(block);
  std::vector<float> scales;
  for (size_t begin = 0; begin < row.size(); begin += size) scales.push_back(BestScale(row.subspan(begin, size), importance.subspan(begin, size)));
  return scales;
}

}  // namespace

void InputMoments::Add(const float* x, int64_t rows, struct pthreadpool* pool) {
  const size_t n = static_cast<size_t>(width_);
  std::vector<float> columns;  // [width, rows]: the product of rows is then one of contiguous vectors
  std::vector<const float*> finite;
  for (int64_t r = 0; r < rows; ++r)
    if (const float* row = x + static_cast<size_t>(r) * n; AllFinite({row, n})) finite.push_back(row);
  const int64_t kept = static_cast<int64_t>(finite.size());
  if (kept == 0) return;
  columns.resize(n * finite.size());
  for (size_t r = 0; r < finite.size(); ++r)
    for (size_t i = 0; i < n; ++i) columns[i * finite.size() + r] = finite[r][i];
  AddColumns(columns.data(), kept, pool);
}

void InputMoments::AddColumns(const float* columns, int64_t rows, struct pthreadpool* pool) {
  // The upper triangle by blocks of rows; the lower one is its mirror.
  constexpr int64_t kBlock = 64;
  ParallelFor(pool, (width_ + kBlock - 1) / kBlock, [&](int64_t i) {
    const int64_t begin = i * kBlock, count = std::min(kBlock, width_ - begin);
    const float* block = columns + begin * rows;
    MultiplyTransposed({count, width_ - begin, rows, block, rows, block, rows, sums_.data() + begin * width_ + begin, width_});
  });
  for (int64_t r = 0; r < width_; ++r)
    for (int64_t c = 0; c < r; ++c) sums_[static_cast<size_t>(r * width_ + c)] = sums_[static_cast<size_t>(c * width_ + r)];
  for (int64_t i = 0; i < width_; ++i)
    for (int64_t r = 0; r < rows; ++r) totals_[static_cast<size_t>(i)] += static_cast<double>(columns[i * rows + r]);
  rows_ += rows;
}

void InputMoments::Merge(const InputMoments& other) {
  for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += other.sums_[i];
  for (size_t i = 0; i < totals_.size(); ++i) totals_[i] += other.totals_[i];
  rows_ += other.rows_;
}

InputMoments InputMoments::Centered() const {
  InputMoments centered = *this;
  const size_t n = static_cast<size_t>(width_);
  if (rows_ == 0) return centered;
  for (size_t r = 0; r < n; ++r)
    for (size_t c = 0; c < n; ++c) {
      const double moment = static_cast<double>(sums_[r * n + c]) - totals_[r] * totals_[c] / static_cast<double>(rows_);
      centered.sums_[r * n + c] = static_cast<float>(r == c ? std::max(moment, 0.0) : moment);
    }
  std::fill(centered.totals_.begin(), centered.totals_.end(), 0.0);
  return centered;
}

Compensation::Compensation(const InputMoments& moments) {
  const int64_t n = moments.width();
  const double damping = Damping(moments);
  for (int64_t i = 0; i < n; ++i) importance_.push_back(moments.sums()[static_cast<size_t>(i * n + i)] + static_cast<float>(damping));
  order_.resize(static_cast<size_t>(n));
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(), [&](int64_t a, int64_t b) { return importance_[static_cast<size_t>(a)] > importance_[static_cast<size_t>(b)]; });
  factor_ = InverseFactor(moments, order_, damping);
}

namespace {

// At most kRowsAtOnce rows of `source`; the grid's scales are theirs. `row_errors` may be null.
void RoundChunk(FloatRows& source, int64_t first, int64_t rows, const RoundingGrid& grid, const Compensation& compensation, int8_t* integers,
                double* row_errors) {
  const int64_t n = compensation.width(), blocks = n / grid.block;
  const std::vector<int64_t>& order = compensation.order();
  const std::vector<float>& u = compensation.factor();
  std::vector<float> w(static_cast<size_t>(rows * n)), errors(static_cast<size_t>(rows * kColumns));
  for (int64_t r = 0; r < rows; ++r) {
    const std::span<const float> row = source.row(first + r);
    for (int64_t i = 0; i < n; ++i) w[static_cast<size_t>(r * n + i)] = row[static_cast<size_t>(order[static_cast<size_t>(i)])];
  }
  for (int64_t begin = 0; begin < n; begin += kColumns) {
    const int64_t columns = std::min(kColumns, n - begin), end = begin + columns;
    for (int64_t r = 0; r < rows; ++r) {
      float* row = w.data() + r * n;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t column = order[static_cast<size_t>(i)];
        const float scale = grid.scales[static_cast<size_t>(r * blocks + column / grid.block)];
        const int32_t q = QuantizeElement(row[i], scale, 0, grid.integers);
        integers[r * n + column] = static_cast<int8_t>(q);
        const float* factors = u.data() + i * n;
        const float error = (row[i] - static_cast<float>(q) * scale) / factors[i];
        if (row_errors) row_errors[r] += static_cast<double>(error) * static_cast<double>(error);
        errors[static_cast<size_t>(r * columns + i - begin)] = -error;
        for (int64_t k = i + 1; k < end; ++k) row[k] -= error * factors[k];
      }
    }
    if (end < n) MultiplyAdd({rows, n - end, columns, errors.data(), columns, u.data() + begin * n + end, n, w.data() + end, n});
  }
}

}  // namespace

void RoundRows(const Constant& weight, int64_t first, int64_t rows, const RoundingGrid& grid, const Compensation& compensation, int8_t* integers,
               std::span<double> errors, struct pthreadpool* pool) {
  const int64_t n = compensation.width(), blocks = n / grid.block;
  std::fill(errors.begin(), errors.end(), 0.0);
  ParallelFor(pool, (rows + kRowsAtOnce - 1) / kRowsAtOnce, [&](int64_t chunk) {
    FloatRows source(weight);
    const int64_t begin = chunk * kRowsAtOnce, count = std::min(kRowsAtOnce, rows - begin);
    const RoundingGrid part{grid.integers, grid.block, grid.scales.subspan(static_cast<size_t>(begin * blocks))};
    RoundChunk(source, first + begin, count, part, compensation, integers + begin * n, errors.empty() ? nullptr : errors.data() + begin);
  });
}

PackedBlocks RoundCompensating(const Constant& weight, int block, const Compensation& compensation, struct pthreadpool* pool, BlockScales kind) {
  const int64_t n = compensation.width(), blocks = n / block, total = FloatRows(weight).rows();
  const std::vector<float>& importance = compensation.importance();
  PackedBlocks packed;
  packed.data.resize(static_cast<size_t>(total * n / 2));
  packed.scales.resize(static_cast<size_t>(total * blocks));
  ParallelFor(pool, (total + kRowsAtOnce - 1) / kRowsAtOnce, [&](int64_t chunk) {
    FloatRows source(weight);
    const int64_t first = chunk * kRowsAtOnce, rows = std::min(kRowsAtOnce, total - first);
    std::vector<float> scales;
    std::vector<int8_t> integers(static_cast<size_t>(rows * n));
    for (int64_t r = 0; r < rows; ++r) {
      const std::span<const float> row = source.row(first + r);
      // Chosen before any rounding: the columns of a block are rounded at different times. Exact in bf16.
      const std::vector<float> chosen = kind == BlockScales::kExpanded ? ExpandedScales(row, importance, block) : BestScales(row, importance, block);
      scales.insert(scales.end(), chosen.begin(), chosen.end());
    }
    std::transform(scales.begin(), scales.end(), packed.scales.begin() + first * blocks, FloatToBFloat16);
    RoundChunk(source, first, rows, {kFourBits, block, scales}, compensation, integers.data(), nullptr);
    uint8_t* to = packed.data.data() + first * n / 2;
    for (size_t i = 0; i < integers.size(); i += 2) *to++ = static_cast<uint8_t>((integers[i] + 8) | ((integers[i + 1] + 8) << 4));
  });
  return packed;
}

}  // namespace dovetail
