// Constant weights that were quantized before the export, as the operands that quantized layers take.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "ir/graph.h"

namespace dovetail {

// The constant that `v` holds the elements of, in the same order, behind views and conversions that lose nothing; null when it is none or
// its data are not known.
const Constant* ConstantBehind(const Module& module, const Graph& graph, ValueId v);
// Its elements, row-major. nullopt when there is none.
std::optional<std::vector<double>> NumbersOf(const Module& module, const Graph& graph, ValueId v);
// The one element of a value that has one.
std::optional<double> NumberOf(const Module& module, const Graph& graph, ValueId v);

// Indices into Module::constants.
struct StoredWeight {
  uint32_t data = kNone, scale = kNone;
};

// Makes each weight once, however many layers share it: tied weights stay tied. Integers are not copied; those of four bits are packed
// as they are streamed out.
class StoredWeights {
 public:
  explicit StoredWeights(Module& module) : module_(module) {}

  // `v` is dequantize_affine or dequantize of i8 constants: i8 per_channel along `axis` with scales f32, all zero points being 0. Of a matrix with scales
  // for groups of columns and integers from -8 to 7: u8 per_block of four bits with scales rounded to bf16, if 32 divides the group.
  std::optional<StoredWeight> Find(const Graph& graph, ValueId v, int axis);
  // The same of the parts: integers with one scale for each index of `axis`.
  std::optional<StoredWeight> PerChannel(const Constant& integers, std::span<const double> scales, const void* scales_identity, int axis);

 private:
  using Key = std::tuple<const void*, std::string, const void*, double, int>;  // integers, their layout, scales, axis or -block

  std::optional<StoredWeight> PerBlock(const Constant& integers, std::span<const double> scales, const void* scales_identity, int64_t block);
  StoredWeight Add(Key key, Constant integers, TensorType scale_type, std::vector<std::byte> scales);

  Module& module_;
  std::map<Key, StoredWeight> made_;
};

// A bias rounded to multiples of input_scale * weight_scales[n] (one for all, or one each): the 32-bit integers that a static layer adds to its
// sums of products stand for exactly these numbers.
std::vector<float> BiasOnGrid(std::span<const float> bias, float input_scale, std::span<const float> weight_scales);

}  // namespace dovetail
