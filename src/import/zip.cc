#include "import/zip.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace dovetail::pt2 {
namespace {

using Bytes = std::span<const std::byte>;

constexpr uint32_t kEndSignature = 0x06054b50, kEnd64Signature = 0x06064b50, kEnd64LocatorSignature = 0x07064b50;
constexpr uint32_t kDirectorySignature = 0x02014b50, kLocalSignature = 0x04034b50;
constexpr size_t kEndSize = 22, kEnd64Size = 56, kEnd64LocatorSize = 20, kDirectorySize = 46, kLocalSize = 30, kMaxComment = 65535;
constexpr uint16_t kZip64Field = 1, kStored = 0, kEncrypted = 1;

// Zip is little-endian, and so is every machine this runs on. The caller has checked the bounds.
template <class T>
T Read(Bytes bytes, size_t at) {
  T v;
  std::memcpy(&v, bytes.data() + at, sizeof v);
  return v;
}
bool Inside(Bytes bytes, uint64_t at, uint64_t size) { return at <= bytes.size() && size <= bytes.size() - at; }

Status Truncated(std::string_view what) {
  return Corrupt("the file is truncated or damaged (", what, "); copy or export it again");
}

struct Directory {
  uint64_t entries = 0, size = 0, offset = 0;
};

std::optional<size_t> FindEnd(Bytes bytes) {
  if (bytes.size() < kEndSize) return std::nullopt;
  const size_t last = bytes.size() - kEndSize, first = last > kMaxComment ? last - kMaxComment : 0;
  for (size_t at = last + 1; at-- > first;)
    if (Read<uint32_t>(bytes, at) == kEndSignature && Read<uint16_t>(bytes, at + 20) <= last - at) return at;
  return std::nullopt;
}

Result<Directory> ReadEnd(Bytes bytes) {
  const auto end = FindEnd(bytes);
  if (!end) {
    if (bytes.size() >= 4 && Read<uint32_t>(bytes, 0) == kLocalSignature) return Truncated("a zip archive without its directory at the end");
    return Corrupt("not a .pt2 file: it is no zip archive; torch.export.save(program, \"model.pt2\") writes one");
  }
  Directory d{Read<uint16_t>(bytes, *end + 10), Read<uint32_t>(bytes, *end + 12), Read<uint32_t>(bytes, *end + 16)};
  const bool wide = d.entries == UINT16_MAX || d.size == UINT32_MAX || d.offset == UINT32_MAX;
  if (wide && *end >= kEnd64LocatorSize && Read<uint32_t>(bytes, *end - kEnd64LocatorSize) == kEnd64LocatorSignature) {
    const uint64_t at = Read<uint64_t>(bytes, *end - kEnd64LocatorSize + 8);
    if (!Inside(bytes, at, kEnd64Size) || Read<uint32_t>(bytes, at) != kEnd64Signature) return Truncated("its zip64 end record is missing");
    d = {Read<uint64_t>(bytes, at + 32), Read<uint64_t>(bytes, at + 40), Read<uint64_t>(bytes, at + 48)};
  }
  if (!Inside(bytes, d.offset, d.size)) return Truncated("its directory lies outside the file");
  if (d.entries > d.size / kDirectorySize) return Corrupt("zip directory: ", d.entries, " entries do not fit in ", d.size, " bytes");
  return d;
}

struct Entry {
  std::string_view name;
  uint64_t size = 0, packed_size = 0, local = 0;
  uint32_t crc32 = 0;
};

// Values that do not fit in 32 bits stand in the zip64 field, in this order.
Status ReadZip64(Bytes extra, Entry& e) {
  const bool need_size = e.size == UINT32_MAX, need_packed = e.packed_size == UINT32_MAX, need_local = e.local == UINT32_MAX;
  for (size_t at = 0; at + 4 <= extra.size();) {
    const uint16_t id = Read<uint16_t>(extra, at);
    const size_t length = Read<uint16_t>(extra, at + 2);
    if (!Inside(extra, at + 4, length)) break;
    if (id == kZip64Field) {
      const Bytes field = extra.subspan(at + 4, length);
      size_t next = 0;
      for (auto [needed, value] : {std::pair(need_size, &e.size), std::pair(need_packed, &e.packed_size), std::pair(need_local, &e.local)}) {
        if (!needed) continue;
        if (!Inside(field, next, 8)) return Corrupt("zip directory: the zip64 field of '", e.name, "' is too short");
        *value = Read<uint64_t>(field, next);
        next += 8;
      }
      return OkStatus();
    }
    at += 4 + length;
  }
  return OkStatus();
}

}  // namespace

Result<ZipArchive> ZipArchive::Open(Bytes bytes) {
  if (bytes.empty()) return Corrupt("not a .pt2 file: it is empty; copy or export it again");
  DT_ASSIGN_OR_RETURN(const Directory directory, ReadEnd(bytes));
  ZipArchive archive;
  archive.members_.reserve(directory.entries);
  std::vector<std::pair<uint64_t, uint64_t>> extents;  // [begin, end) of each member with its local header
  size_t at = directory.offset;
  const size_t end = directory.offset + directory.size;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    if (end - at < kDirectorySize || Read<uint32_t>(bytes, at) != kDirectorySignature) return Corrupt("zip directory: entry ", i, " is damaged");
    Entry e;
    const uint16_t flags = Read<uint16_t>(bytes, at + 8), method = Read<uint16_t>(bytes, at + 10);
    e.crc32 = Read<uint32_t>(bytes, at + 16);
    e.packed_size = Read<uint32_t>(bytes, at + 20);
    e.size = Read<uint32_t>(bytes, at + 24);
    const size_t name = Read<uint16_t>(bytes, at + 28), extra = Read<uint16_t>(bytes, at + 30), comment = Read<uint16_t>(bytes, at + 32);
    e.local = Read<uint32_t>(bytes, at + 42);
    if (end - at - kDirectorySize < name + extra + comment) return Corrupt("zip directory: entry ", i, " is damaged");
    e.name = {reinterpret_cast<const char*>(bytes.data()) + at + kDirectorySize, name};
    DT_RETURN_IF_ERROR(ReadZip64(bytes.subspan(at + kDirectorySize + name, extra), e));
    at += kDirectorySize + name + extra + comment;

    if (flags & kEncrypted) return Unsupported("member '", e.name, "' of the archive is encrypted");
    if (method != kStored || e.packed_size != e.size)
      return Unsupported("member '", e.name, "' of the archive is compressed; torch.export.save stores members as they are, so the file was packed again");
    if (!Inside(bytes, e.local, kLocalSize) || Read<uint32_t>(bytes, e.local) != kLocalSignature)
      return Truncated(StrCat("the header of member '", e.name, "' is missing"));
    const uint64_t data = e.local + kLocalSize + Read<uint16_t>(bytes, e.local + 26) + Read<uint16_t>(bytes, e.local + 28);
    if (!Inside(bytes, data, e.size)) return Truncated(StrCat("member '", e.name, "' of ", e.size, " bytes reaches past its end"));
    extents.emplace_back(e.local, data + e.size);
    if (!archive.by_name_.emplace(e.name, archive.members_.size()).second) return Corrupt("the archive has two members named '", e.name, "'");
    archive.members_.push_back({e.name, bytes.subspan(data, e.size), e.crc32});
  }
  std::sort(extents.begin(), extents.end());
  for (size_t i = 1; i < extents.size(); ++i)
    if (extents[i].first < extents[i - 1].second) return Corrupt("members of the archive overlap at offset ", extents[i].first);
  return archive;
}

const ZipMember* ZipArchive::Find(std::string_view name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &members_[it->second];
}

}  // namespace dovetail::pt2
