// Constant weights to integers by rounding to nearest.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <tuple>

#include "ir/graph.h"
#include "quant/scheme.h"

namespace dovetail {

// Indices into Module::constants.
struct QuantizedWeight {
  uint32_t data = kNone, scale = kNone;
  bool ok() const { return data != kNone; }
};

// Rows of a constant of floating type as f32, without a copy where the bytes allow it. The constant outlives this.
class FloatRows {
 public:
  explicit FloatRows(const Constant& c);
  int64_t rows() const { return rows_; }
  int64_t width() const { return width_; }  // elements of a row: the product of the other dims
  // Valid until the next call.
  std::span<const float> row(int64_t i);

 private:
  const Constant& constant_;
  int64_t rows_, width_;
  std::vector<float> buffer_;
};

bool AllFinite(std::span<const float> values);
Status NotFinite(const Constant& weight);  // what a weight is refused with that has a value that is not

// The least scale whose 4-bit integers -8 to 7 reach all of a block: max(-min / 8, max / 7). NaN if a value is not finite.
float BlockScale(std::span<const float> w);

// A matrix [N,K] in blocks of 4-bit integers.
struct PackedBlocks {
  std::vector<uint8_t> data;     // [N, K/2], low nibble first, 8 standing for zero
  std::vector<uint16_t> scales;  // bf16 [N, K/block]
};

// Makes each weight once, however many layers share it: tied weights stay tied.
class WeightQuantizer {
 public:
  explicit WeightQuantizer(Module& module) : module_(module) {}

  // i8 with one scale per index of `axis` (max|w| / 127), f32[n]. The weight's shape stays.
  Result<QuantizedWeight> PerChannel(uint32_t constant, int axis);
  // The same with other scales, for layers whose bias or result asks for them, or with 4 bits (-8 to 7, one to a byte). Equal scales give the same constants.
  Result<QuantizedWeight> PerChannel(uint32_t constant, int axis, std::vector<float> scales, int bits = 8);
  // From now on PerChannel gives these integers, in the weight's shape, for these scales.
  void SetPerChannel(uint32_t constant, int axis, std::vector<float> scales, int bits, std::vector<int8_t> integers);
  // max|w| / 127 of each index of `axis`; 0 where all are zero. Fails on values that are not finite.
  Result<std::vector<float>> ChannelScales(uint32_t constant, int axis);
  // A matrix [N,K], K a multiple of `block`: u8[N,K/2] with bf16 scales [N,K/block], of each block its BlockScale or one
  // a little smaller, if that errs less.
  Result<QuantizedWeight> PerBlock(uint32_t constant, int block);
  Status CheckFinite(uint32_t constant) const;
  // For a scheme of 4 bits: this weight, and what is tied to it, has 8.
  void StayAt8Bits(uint32_t constant) { at_8_bits_.insert(module_.constants[constant].identity()); }
  bool stays_at_8_bits(uint32_t constant) const { return at_8_bits_.contains(module_.constants[constant].identity()); }
  bool HasPerBlock(uint32_t constant, int block) const { return made_.contains(KeyOf(module_.constants[constant], 4, block)); }
  // From now on PerBlock gives this for the constant (and what is tied to it).
  void SetPerBlock(uint32_t constant, int block, PackedBlocks blocks);
  // The matrix whose rows are the columns of a constant matrix: a view of the same bytes, made once.
  uint32_t Transposed(uint32_t constant);

 private:
  using Key = std::tuple<const void*, std::string, int, int>;  // bytes, layout, bits, axis
  Key KeyOf(const Constant& c, int bits, int axis) const;
  Key KeyOf(const Constant& c, int bits, int axis, std::span<const float> scales) const;
  Result<QuantizedWeight> Add(uint32_t constant, TensorType type, std::function<void(std::byte*)> recipe, TensorType scale_type, std::vector<std::byte> scales);

  Module& module_;
  std::map<Key, QuantizedWeight> made_;
  std::map<Key, std::vector<float>> scales_;
  std::map<uint32_t, uint32_t> transposed_;
  std::set<const void*> at_8_bits_;
};

}  // namespace dovetail
