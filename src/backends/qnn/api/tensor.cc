#include "backends/qnn/api/tensor.h"

#include <cstring>

namespace dovetail::qnn {

uint64_t Numel(std::span<const uint32_t> dims) {
  uint64_t n = 1;
  for (uint32_t d : dims) n *= d;
  return n;
}

abi::Tensor MakeTensor(const char* name, abi::TensorKind kind, abi::DataType type, std::optional<abi::ScaleOffset> quantization, std::span<uint32_t> dims) {
  abi::Tensor t;
  std::memset(&t, 0, sizeof t);
  t.version = 1;
  t.v1.name = name;
  t.v1.kind = kind;
  t.v1.data_type = type;
  t.v1.rank = static_cast<uint32_t>(dims.size());
  t.v1.dims = dims.data();
  t.v1.quantize.definition = quantization ? abi::kQuantizeDefined : abi::kUndefined;
  t.v1.quantize.encoding = quantization ? abi::Encoding::kScaleOffset : abi::Encoding::kUndefined;
  if (quantization) t.v1.quantize.scale_offset = *quantization;
  return t;
}

}  // namespace dovetail::qnn
