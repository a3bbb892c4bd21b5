// The named data "dovetail.hashes": 64-bit words, little endian, each the XXH3 of a part of the file, by which damage is found:
//
//   of the words that follow | of all in front of the segments | of each segment in order, but for this one, which is the last
//
// ExecuTorch ignores them. They find what disks and transfers do, not what somebody does on purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "format/payload.h"

namespace dovetail {

inline constexpr std::string_view kHashesKey = "dovetail.hashes";
inline constexpr uint64_t kHashBytes = sizeof(uint64_t);
// Words in front of those of the segments.
inline constexpr size_t kFirstSegmentHash = 2;

uint64_t HashPart(std::span<const std::byte> bytes);

// Hands on what is written, and hashes it.
class HashingSink final : public ByteSink {
 public:
  explicit HashingSink(ByteSink& out);
  ~HashingSink();
  Status Write(const void* data, size_t size) override;
  // Of what was written since the last call.
  uint64_t Take();

 private:
  struct State;
  ByteSink& out_;
  std::unique_ptr<State> state_;
};

}  // namespace dovetail
