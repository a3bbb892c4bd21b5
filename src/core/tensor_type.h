// The type of a tensor value: element type, shape, quantization. Everything a pass needs to know about a value is here.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dim.h"
#include "core/dtype.h"

namespace dovetail {

inline constexpr size_t kMaxRank = 8;

// Sizes of up to kMaxRank dimensions, outermost first, held inline. push_back past kMaxRank is a programmer error: readers
// of files check the rank first.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<Dim> dims);
  explicit Shape(std::span<const Dim> dims);
  explicit Shape(std::span<const int64_t> dims);

  size_t rank() const { return rank_; }
  size_t size() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  Dim operator[](size_t i) const { return dims_[i]; }
  Dim& operator[](size_t i) { return dims_[i]; }
  Dim back() const { return dims_[rank_ - 1]; }
  void push_back(Dim d);
  void insert(size_t at, Dim d);
  void erase(size_t at);
  const Dim* begin() const { return dims_.data(); }
  const Dim* end() const { return dims_.data() + rank_; }
  std::span<const Dim> dims() const { return {dims_.data(), rank_}; }

  bool is_constant() const;
  // Product of the dims; 1 for rank 0.
  Dim numel() const;
  // "1,s0,64"
  std::string ToString() const;
  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<Dim, kMaxRank> dims_{};
  size_t rank_ = 0;
};

// How stored integers stand for real numbers: real = scale * (stored - zero_point).
struct QuantParams {
  enum class Kind : uint8_t {
    kNone,
    kPerTensor,
    kPerChannel,  // one scale per index of `axis`
    kPerBlock,    // one scale per `block` elements along `axis`
    kDynamic,     // one scale per row, computed at run time; rows span the last dims, `num_nonbatch_dims` of them
  };
  Kind kind = Kind::kNone;
  bool symmetric = true;
  int axis = 0, block = 0, num_nonbatch_dims = 1;
  DType scale_type = DType::kF32;
  std::vector<float> scales;
  std::vector<int32_t> zero_points;  // empty: all zero
  friend bool operator==(const QuantParams&, const QuantParams&) = default;
};

struct TensorType {
  DType dtype = DType::kNone;
  Shape shape;
  QuantParams quant;

  TensorType() = default;
  TensorType(DType t, Shape s) : dtype(t), shape(s) {}
  size_t rank() const { return shape.rank(); }
  // "f32[1,s0,64]", with "{per_channel axis=0}" and the like after it when quantized.
  std::string ToString() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// NumPy's broadcasting of two shapes. A symbolic dim broadcasts with 1 and with itself only.
Result<Shape> Broadcast(const Shape& a, const Shape& b);
// Maps a possibly negative dimension index to [0, rank); rank 0 counts as rank 1.
Result<size_t> NormalizeAxis(int64_t axis, size_t rank);

}  // namespace dovetail
