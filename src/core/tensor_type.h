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

// How stored integers stand for real numbers: real = scale * (stored - zero_point). A per_tensor type has its numbers here. The numbers of
// the other kinds are data beside the integers: operands of the operators that read them (weight_scale, input_scale, ...).
struct QuantParams {
  enum class Kind : uint8_t {
    kNone,
    kPerTensor,
    kPerChannel,  // one scale per index of `axis`
    kPerBlock,    // one scale per `block` elements along the last dim
    kDynamic,     // one scale per row, computed at run time
  };
  Kind kind = Kind::kNone;
  // 8: the dtype's. 4: of u8, two to a byte along the last dim, which has half the size; the even element in the low nibble, 8 standing for zero. Of i8,
  // one to a byte, from -8 to 7.
  uint8_t bits = 8;
  int16_t axis = 0;
  int32_t block = 0;
  float scale = 0;         // above zero and finite
  int32_t zero_point = 0;  // in the dtype's range
  static QuantParams PerTensor(float scale, int32_t zero_point) { return {Kind::kPerTensor, 8, 0, 0, scale, zero_point}; }
  static QuantParams PerChannel(int axis, int bits = 8) { return {Kind::kPerChannel, static_cast<uint8_t>(bits), static_cast<int16_t>(axis), 0, 0, 0}; }
  static QuantParams PerBlock(int block, int bits) { return {Kind::kPerBlock, static_cast<uint8_t>(bits), 0, block, 0, 0}; }
  static QuantParams Dynamic() { return {Kind::kDynamic, 8, 0, 0, 0, 0}; }
  friend bool operator==(const QuantParams&, const QuantParams&) = default;
};

struct TensorType {
  DType dtype = DType::kNone;
  Shape shape;
  QuantParams quant;

  TensorType() = default;
  TensorType(DType t, Shape s) : dtype(t), shape(s) {}
  TensorType(DType t, Shape s, QuantParams q) : dtype(t), shape(s), quant(q) {}
  size_t rank() const { return shape.rank(); }
  bool per_tensor() const { return quant.kind == QuantParams::Kind::kPerTensor; }
  // "f32[1,s0,64]"; when quantized "i8[8,4]{per_channel axis=0}" (with " bits=4" if so), "u8[8,16]{per_block size=32 bits=4}", "i8[2]{per_tensor scale=0.1
  // zero_point=-3}", "i8[1,s0,4]{dynamic per_row}".
  std::string ToString() const;
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

// What a per_tensor type stands for: f32 of that shape. Other types are as they are.
TensorType Dequantized(const TensorType& type);

// NumPy's broadcasting of two shapes. A symbolic dim broadcasts with 1 and with itself only.
Result<Shape> Broadcast(const Shape& a, const Shape& b);
// Maps a possibly negative dimension index to [0, rank); rank 0 counts as rank 1.
Result<size_t> NormalizeAxis(int64_t axis, size_t rank);

}  // namespace dovetail
