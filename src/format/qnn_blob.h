// What a .pte has of a QNN delegate: the blob around a context binary, and the compile spec. Both are those of ExecuTorch's QnnBackend, so that one file
// runs in either runtime.
//
// The blob is a header of 256 bytes and the context binary, little endian: u32 magic, i64 signature, u64 size of the binary, zeros up to 256.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace dovetail {

inline constexpr const char* kQnnDelegateId = "QnnBackend";
inline constexpr const char* kQnnCompileSpecKey = "qnn_compile_spec";
inline constexpr size_t kQnnHeaderSize = 256;

// The binary with its header; the signature is a hash of the binary.
std::vector<std::byte> WriteQnnBlob(std::span<const std::byte> binary);

struct QnnBlob {
  int64_t signature = 0;
  std::span<const std::byte> binary;  // within the bytes given
};
// What is inside the binary only Qualcomm's library knows. `name` starts error messages.
Result<QnnBlob> ReadQnnBlob(std::span<const std::byte> bytes, const std::string& name);

struct QnnSpec {
  uint32_t soc_model = 0;  // 0: unknown
  uint32_t arch = 0, vtcm_mb = 0;
  bool fp16 = false;
  bool shared_weights = false;  // by the graphs of the context
};
std::vector<std::byte> QnnCompileSpec(const QnnSpec& spec);
// Refuses specs for other backends than HTP, and graphs that are to be prepared on the device.
Result<QnnSpec> ReadQnnCompileSpec(std::span<const std::byte> bytes, const std::string& name);

}  // namespace dovetail
