// One .npy array (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): "\x93NUMPY", version, length, a Python
// dictionary of descr, fortran_order and shape, then the elements. Versions 1 to 3 are read, version 1 is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/arrays.h"

namespace dovetail {

struct NpyHeader {
  DType dtype = DType::kNone;
  bool fortran_order = false;  // the first dimension varies fastest
  std::vector<int64_t> shape;
  size_t size = 0;  // bytes before the elements
};

// `where` starts each message: "'f.npz': array 'x'". Unsupported: big-endian elements, structures, Python objects, strings, and element
// types that Dovetail does not have.
Result<NpyHeader> ParseNpyHeader(std::span<const std::byte> bytes, const std::string& where);

// A whole .npy of exactly `bytes`. An array in Fortran order is brought into row-major order.
Result<NamedArray> ParseNpy(std::span<const std::byte> bytes, std::string name, const std::string& where);

// What precedes the elements; its size is a multiple of 64. Fails with kInvalidArgument for bf16 and kNone.
Result<std::string> PrintNpyHeader(DType dtype, std::span<const int64_t> shape, const std::string& where);

}  // namespace dovetail
