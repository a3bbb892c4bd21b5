// Named arrays in files: .npz and .npy of NumPy, and .safetensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "core/dtype.h"

namespace dovetail {

struct NamedArray {
  std::string name;
  DType dtype = DType::kNone;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;  // row-major
};

// The format follows from the file's ending. Members of an .npz must be stored, as numpy.savez writes them; the one array of an .npy is
// named "input_0". Every size is checked against the file before memory is taken.
Result<std::vector<NamedArray>> LoadArrays(const std::string& path);
Result<std::vector<NamedArray>> ParseNpz(std::span<const std::byte> bytes, const std::string& name);
Result<std::vector<NamedArray>> ParseSafetensors(std::span<const std::byte> bytes, const std::string& name);

// The same arrays give the same bytes. bf16 has no NumPy type: an error.
Status SaveNpz(const std::string& path, std::span<const NamedArray> arrays);

}  // namespace dovetail
