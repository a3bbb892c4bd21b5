// What is in a context binary, read by Qualcomm's System library without making a context of it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/qnn/api/library.h"

namespace dovetail::qnn {

struct BinaryTensor {
  uint32_t id = 0;
  std::string name;
  abi::DataType dtype = abi::DataType::kUndefined;
  std::optional<abi::ScaleOffset> quantization;  // of the whole tensor
  std::vector<uint32_t> dims;

  uint64_t numel() const;  // at most 2^62
};

struct BinaryGraph {
  std::string name;
  std::vector<BinaryTensor> inputs, outputs;  // in the graph's order
};

struct BinaryInfo {
  std::string build;  // of the SDK that made it: "v2.51.0.260929181845"
  abi::Version core = {}, backend = {};
  uint32_t soc_model = 0;  // 0: not said
  std::vector<BinaryGraph> graphs;

  const BinaryGraph* FindGraph(std::string_view name) const;
};

// `binary` may be anything: what the library says of it is checked for counts and sizes that cannot be.
Result<BinaryInfo> ReadBinaryInfo(const Library& library, std::span<const std::byte> binary);

// OK if the library is not older than what made the binary.
Status CheckVersion(const BinaryInfo& info, const Library& library);

// "u16", or "data type 0x304" of one that programs cannot have.
std::string DataTypeName(abi::DataType type);

}  // namespace dovetail::qnn
