// A cache file of packed weights, made for one version of a program file, one build of the library and one processor.
//
//   header (4096 bytes) | packed weights, each at a multiple of 64 | index
//
// It is made under another name and renamed, so it is there as a whole or not at all. Its contents are hashed; the hash is checked again when the
// machine was started anew or the file was written to since.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/delegate.h"

namespace dovetail {

using Hash128 = std::array<uint64_t, 2>;
Hash128 HashBytes(const void* data, size_t size);

struct PackedEntry {
  Hash128 key{};           // of what was packed and how
  uint64_t offset = 0;     // in the file, and from the start of the addresses that it is mapped to
  uint64_t size = 0;
};

class WeightsFile {
 public:
  static constexpr size_t kHeaderBytes = 4096;

  // Finds the name for the program. Null where there can be no file: the program came from memory or was changed a moment ago, no folder
  // was given, or this library or processor cannot be told from another.
  static std::unique_ptr<WeightsFile> For(const ProgramSource& program);

  struct Contents {
    int fd = -1;  // the caller's to close; -1: there is no valid file
    uint64_t bytes = 0;
    std::vector<PackedEntry> entries;
  };
  Contents Open() const;
  // Writes [kHeaderBytes, end) of `base`, and then the entries. Fails without harm: on a full disk the folder is as it was.
  Status Write(const std::byte* base, uint64_t end, const std::vector<PackedEntry>& entries) const;

  const std::string& path() const { return path_; }

 private:
  WeightsFile() = default;
  struct Header;
  Header NewHeader() const;
  bool Check(int fd, Contents* contents) const;
  // Removes what a killed process left half written, and files not used for longest.
  void MakeRoom(uint64_t bytes) const;

  std::string folder_, path_;
  uint64_t limit_ = 0;
  Hash128 machine_{};
  FileIdentity source_;
};

}  // namespace dovetail
