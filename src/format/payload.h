// Bytes that are produced only when a file is written, so that a model's weights are never all in memory at once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"

namespace dovetail {

// Where a Payload's bytes go, in order.
class ByteSink {
 public:
  virtual Status Write(const void* data, size_t size) = 0;

 protected:
  ~ByteSink() = default;
};

// Keeps what is written.
class VectorSink final : public ByteSink {
 public:
  Status Write(const void* data, size_t size) override {
    const auto* p = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), p, p + size);
    return OkStatus();
  }
  std::vector<std::byte> bytes;
};

inline Status WriteZeros(ByteSink& sink, uint64_t size) {
  static constexpr char kZeros[256] = {};
  for (; size > 0; size -= std::min<uint64_t>(size, sizeof kZeros)) DT_RETURN_IF_ERROR(sink.Write(kZeros, std::min<uint64_t>(size, sizeof kZeros)));
  return OkStatus();
}

// `write` delivers exactly `size` bytes, in as many pieces as it likes. It is called once per file written, may be called
// again for another file, and must give the same bytes each time. A null `write` is allowed for size 0.
struct Payload {
  uint64_t size = 0;
  std::function<Status(ByteSink&)> write = {};

  // Keeps the bytes.
  static Payload Owned(std::vector<std::byte> bytes) {
    auto kept = std::make_shared<const std::vector<std::byte>>(std::move(bytes));  // std::function copies its target
    return {kept->size(), [kept](ByteSink& sink) { return sink.Write(kept->data(), kept->size()); }};
  }
  // The caller keeps the bytes alive until the file is written.
  static Payload Borrowed(std::span<const std::byte> bytes) {
    return {bytes.size(), [bytes](ByteSink& sink) { return sink.Write(bytes.data(), bytes.size()); }};
  }
};

}  // namespace dovetail
