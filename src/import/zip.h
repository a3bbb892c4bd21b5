// Reads the directory of a zip archive in memory, zip64 included. Members must be stored without compression, as torch writes them,
// so that they can be used where they lie.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace dovetail::pt2 {

struct ZipMember {
  std::string_view name;            // into the archive
  std::span<const std::byte> data;  // into the archive
  uint32_t crc32 = 0;               // of the data, as the archive has it
};

class ZipArchive {
 public:
  // Checks everything that Find and members() rely on: members lie inside `bytes`, do not overlap, and have names of their own.
  static Result<ZipArchive> Open(std::span<const std::byte> bytes);

  const std::vector<ZipMember>& members() const { return members_; }
  // Null when there is none.
  const ZipMember* Find(std::string_view name) const;

 private:
  std::vector<ZipMember> members_;  // in directory order
  std::unordered_map<std::string_view, size_t> by_name_;
};

}  // namespace dovetail::pt2
