// What calibration learns of one value, and the quantization parameters that follow from it.
//
// An observer is a mergeable value: the one of all calls is the merge of those of any parts of the calls, in any order. Counts, range and histogram
// come out the same bit for bit; the mean range and the calls' power up to the rounding of a sum in double.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "ops/quantization.h"

namespace dovetail {

class Observer {
 public:
  static constexpr int kBins = 4096;

  // The elements that the value had in call number `call`. NaN and infinities are counted and else ignored.
  void Add(std::span<const float> values, size_t call);
  void Merge(const Observer& other);

  uint64_t finite() const { return finite_; }  // elements seen
  uint64_t nans() const { return nans_; }
  uint64_t infinities() const { return infinities_; }
  // The lowest call with an element that was not finite; SIZE_MAX: none.
  size_t first_bad_call() const { return first_bad_call_; }

  // Of all finite elements, widened to hold 0.
  ValueRange FullRange() const;
  // The mean over calls of the lowest and of the highest element, widened to hold 0.
  ValueRange MeanRange() const;
  // Leaves out at most the part `tail` of the elements on either side.
  ValueRange PercentileRange(double tail) const;
  // The range whose `steps` give the least squared error: rounding within it, and clipping beyond it, which counts `clipping` times.
  ValueRange MseRange(double clipping = 1, int steps = 255) const;

  // What rounding to `step` leaves of the quieter calls: of 10 log10(mean square / (step^2 / 12)) by call, the one that a tenth of the calls with an element
  // that is not 0 are below. Infinite where no call has such an element.
  double QuietCalls(double step) const;
  // The same of all elements but the twentieth that is farthest from 0, whose size says nothing of the others'.
  double MostElements(double step) const;
  // The share of the elements other than 0 whose size is less than a two-thousandth to a thousandth of the largest one's.
  double NearZero() const;

  friend bool operator==(const Observer&, const Observer&) = default;

 private:
  struct Power {
    double squares = 0;
    uint64_t elements = 0;
    friend bool operator==(const Power&, const Power&) = default;
  };
  // Bin i counts the elements in [i - kBins / 2, i + 1 - kBins / 2) * 2^exponent_, but for 0, which has no error. A wider range doubles the width of
  // the bins, which joins pairs of them: where an element is counted depends on the final width alone.
  void Widen(int exponent);

  uint64_t finite_ = 0, nans_ = 0, infinities_ = 0, calls_ = 0;
  size_t first_bad_call_ = SIZE_MAX;
  float min_ = 0, max_ = 0;
  double sum_min_ = 0, sum_max_ = 0;
  int exponent_ = 0;
  std::map<size_t, Power> power_;  // by call
  std::vector<uint64_t> bins_;  // empty until an element is not 0
};

// Parameters of a range for i8, u8 or u16: 0 is exact, the zero point is in the dtype's range, the scale is above zero, normal and finite. The empty range
// [0, 0] has scale 1.
QuantParams ParamsOf(ValueRange range, DType dtype = DType::kI8);

}  // namespace dovetail
