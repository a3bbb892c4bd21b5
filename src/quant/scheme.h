// The quantization schemes a user can name, as data.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/dtype.h"

namespace dovetail {

enum class Activations : uint8_t {
  kFloat,    // weights alone are quantized
  kDynamic,  // i8 per row, at run time: nothing to calibrate
  kStatic,   // i8 per tensor between layers, from calibration
  kFixed,    // every value of the graph per tensor, from calibration: for hardware that computes in fixed point
  kHalf,     // nothing is quantized; the backend computes in f16
};

struct Scheme {
  std::string_view name;
  Activations activations;
  int weight_bits;     // of linears: 8 (per_channel) or 4 (per_block); convolutions have 8 always, but for kFixed
  int embedding_bits;  // of embeddings and of linears tied to them
  int block;           // of 4-bit weights
  std::string_view description;
  DType activation = DType::kI8;  // what activations become
};

// Whether only an NPU computes all of it as it is meant.
inline bool IsForNpu(const Scheme& s) { return s.activations == Activations::kFixed || s.activations == Activations::kHalf; }

// Whether quantizing needs recorded calls.
inline bool IsCalibrated(const Scheme& s) { return s.activations == Activations::kStatic || s.activations == Activations::kFixed; }

std::span<const Scheme> Schemes();
// Null when there is none of that name.
const Scheme* FindScheme(std::string_view name);

}  // namespace dovetail
