// Tensors as QNN's calls take them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "backends/qnn/api/abi.h"

namespace dovetail::qnn {

// The product of the dims. Modulo 2^64: of dims that were not checked it may be anything.
uint64_t Numel(std::span<const uint32_t> dims);

// Without id and memory. `name` and `dims` must stay. Without `quantization`, which is of the whole tensor, the numbers are what they are.
abi::Tensor MakeTensor(const char* name, abi::TensorKind kind, abi::DataType type, std::optional<abi::ScaleOffset> quantization, std::span<uint32_t> dims);

}  // namespace dovetail::qnn
