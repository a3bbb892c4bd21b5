// What the readers of .npy, .npz and .safetensors check alike. `where` starts each message: "'f.npz': array 'x'".
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"
#include "core/dtype.h"

namespace dovetail {

// Bytes of an array, checked so that no product of some of its sizes overflows either, even next to a size of 0.
inline Result<uint64_t> ArrayBytes(DType dtype, std::span<const int64_t> shape, const std::string& where) {
  int64_t product = static_cast<int64_t>(ByteSize(dtype));
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0) return Corrupt(where, " has a negative size, ", size);
    empty |= size == 0;
    if (size != 0 && __builtin_mul_overflow(product, size, &product)) return Corrupt(where, " has a shape whose size in bytes does not fit in 63 bits");
  }
  return empty ? uint64_t{0} : static_cast<uint64_t>(product);
}

// A C++ bool is 0 or 1 and nothing else.
inline Status CheckBools(DType dtype, std::span<const std::byte> data, const std::string& where) {
  if (dtype != DType::kBool) return OkStatus();
  for (std::byte b : data)
    if (b > std::byte{1}) return Corrupt(where, " is of bools, and holds the byte ", static_cast<unsigned>(b), " where only 0 and 1 may be");
  return OkStatus();
}

}  // namespace dovetail
