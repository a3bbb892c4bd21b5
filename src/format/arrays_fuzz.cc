// Hostile .npz, .npy and .safetensors: reading fails, or gives arrays of the sizes that their shapes say.
#include "base/check.h"
#include "format/array_checks.h"
#include "format/npy.h"

namespace {

constexpr std::string_view kZip = "PK", kNpy = "\x93NUMPY";

std::vector<uint8_t> Npy(std::string_view dictionary, size_t data_size) {
  std::string npy = dovetail::StrCat(kNpy, '\1', '\0', static_cast<char>(dictionary.size()), '\0', dictionary);
  npy.append(data_size, '\1');
  return {npy.begin(), npy.end()};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dovetail;
  const auto bytes = std::as_bytes(std::span(data, size));
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<NamedArray> arrays;
  if (text.starts_with(kNpy)) {
    auto array = ParseNpy(bytes, "x", "fuzz");
    if (!array.ok()) return 0;
    arrays.push_back(std::move(*array));
  } else {
    auto parsed = text.starts_with(kZip) ? ParseNpz(bytes, "fuzz") : ParseSafetensors(bytes, "fuzz");
    if (!parsed.ok()) return 0;
    arrays = std::move(*parsed);
  }
  for (const NamedArray& a : arrays) {
    auto needed = ArrayBytes(a.dtype, a.shape, "fuzz");
    DT_CHECK(a.dtype != DType::kNone && needed.ok() && *needed == a.data.size());
  }
  return 0;
}

std::vector<std::vector<uint8_t>> FuzzSeeds() {
  return {Npy("{'descr': '<i4', 'fortran_order': True, 'shape': (2, 3), }\n", 24), Npy("{'descr': '|b1', 'fortran_order': False, 'shape': (), }\n", 1)};
}
