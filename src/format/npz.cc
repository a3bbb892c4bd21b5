// .npz: a zip archive (APPNOTE.TXT of PKWARE) of stored .npy members, zip64 included.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "base/crc32.h"
#include "base/mapped_file.h"
#include "format/array_checks.h"
#include "format/arrays.h"
#include "format/npy.h"

namespace dovetail {
namespace {

using Bytes = std::span<const std::byte>;

constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kEnd64Locator = 0x07064b50, kDirectory = 0x02014b50, kLocal = 0x04034b50;
constexpr size_t kEndSize = 22, kEnd64Size = 56, kEnd64LocatorSize = 20, kDirectorySize = 46, kLocalSize = 30, kMaxComment = UINT16_MAX;
constexpr uint16_t kZip64Field = 1, kStored = 0, kEncryptedFlag = 1, kUtf8Flag = 0x800, kVersion = 20, kVersion64 = 45;
constexpr uint16_t kFirstOfJanuary1980 = 0x21;  // the earliest date of the format, so that the same arrays give the same bytes
constexpr std::string_view kEnding = ".npy";

// Zip is little-endian, and so is every machine this runs on. The caller has checked the bounds.
template <class T>
T Read(Bytes bytes, uint64_t at) {
  T v;
  std::memcpy(&v, bytes.data() + at, sizeof v);
  return v;
}
bool Inside(Bytes bytes, uint64_t at, uint64_t size) { return at <= bytes.size() && size <= bytes.size() - at; }

struct Directory {
  uint64_t entries = 0, size = 0, offset = 0;
};

Result<Directory> FindDirectory(Bytes bytes, const std::string& file) {
  std::optional<size_t> end;
  for (size_t tail = kEndSize; !end && tail <= std::min(bytes.size(), kEndSize + kMaxComment); ++tail)
    if (Read<uint32_t>(bytes, bytes.size() - tail) == kEnd && Read<uint16_t>(bytes, bytes.size() - tail + 20) == tail - kEndSize) end = bytes.size() - tail;
  if (!end) {
    if (bytes.size() >= 4 && Read<uint32_t>(bytes, 0) == kLocal) return Corrupt(file, " is truncated: the zip archive's directory at its end is missing");
    return Corrupt(file, " is no .npz file: it is no zip archive");
  }
  Directory d{Read<uint16_t>(bytes, *end + 10), Read<uint32_t>(bytes, *end + 12), Read<uint32_t>(bytes, *end + 16)};
  if ((d.entries == UINT16_MAX || d.size == UINT32_MAX || d.offset == UINT32_MAX) && *end >= kEnd64LocatorSize &&
      Read<uint32_t>(bytes, *end - kEnd64LocatorSize) == kEnd64Locator) {
    const uint64_t at = Read<uint64_t>(bytes, *end - kEnd64LocatorSize + 8);
    if (!Inside(bytes, at, kEnd64Size) || Read<uint32_t>(bytes, at) != kEnd64) return Corrupt(file, " is damaged: its zip64 end record is missing");
    d = {Read<uint64_t>(bytes, at + 32), Read<uint64_t>(bytes, at + 40), Read<uint64_t>(bytes, at + 48)};
  }
  if (!Inside(bytes, d.offset, d.size)) return Corrupt(file, " is truncated: its zip directory lies outside it");
  if (d.entries > d.size / kDirectorySize) return Corrupt(file, " is damaged: ", d.entries, " zip entries do not fit in ", d.size, " bytes");
  return d;
}

struct Member {
  std::string_view name;
  uint64_t size = 0, packed = 0, local = 0;
  uint32_t crc = 0;
  Bytes data;
};

// Numbers that do not fit in 32 bits stand in the zip64 field, in this order.
Status ReadZip64(Bytes extra, Member& m, const std::string& where) {
  std::vector<uint64_t*> wanted;
  for (uint64_t* value : {&m.size, &m.packed, &m.local})
    if (*value == UINT32_MAX) wanted.push_back(value);
  for (size_t at = 0; !wanted.empty() && at + 4 <= extra.size();) {
    const size_t length = Read<uint16_t>(extra, at + 2);
    if (!Inside(extra, at + 4, length)) break;
    if (Read<uint16_t>(extra, at) == kZip64Field) {
      if (length < 8 * wanted.size()) return Corrupt(where, " is damaged: its zip64 field has ", length, " bytes");
      for (size_t i = 0; i < wanted.size(); ++i) *wanted[i] = Read<uint64_t>(extra, at + 4 + 8 * i);
      break;
    }
    at += 4 + length;
  }
  return OkStatus();
}

// The members with their data, in directory order: inside the file, without overlaps, each of its own name.
Result<std::vector<Member>> ReadMembers(Bytes bytes, const std::string& file) {
  DT_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(bytes, file));
  std::vector<Member> members;
  std::vector<std::pair<uint64_t, uint64_t>> extents;  // [begin, end) of each with its header
  std::unordered_set<std::string_view> names;
  Bytes rest = bytes.subspan(directory.offset, directory.size);
  for (uint64_t i = 0; i < directory.entries; ++i) {
    const auto damaged = [&] { return Corrupt(file, " is damaged: entry ", i, " of its zip directory"); };
    if (rest.size() < kDirectorySize || Read<uint32_t>(rest, 0) != kDirectory) return damaged();
    const size_t name = Read<uint16_t>(rest, 28), extra = Read<uint16_t>(rest, 30), comment = Read<uint16_t>(rest, 32);
    if (rest.size() - kDirectorySize < name + extra + comment) return damaged();
    Member m{.name = {reinterpret_cast<const char*>(rest.data()) + kDirectorySize, name}, .size = Read<uint32_t>(rest, 24),
             .packed = Read<uint32_t>(rest, 20), .local = Read<uint32_t>(rest, 42), .crc = Read<uint32_t>(rest, 16), .data = {}};
    const std::string where = StrCat(file, ": member '", m.name, "'");
    DT_RETURN_IF_ERROR(ReadZip64(rest.subspan(kDirectorySize + name, extra), m, where));
    if (Read<uint16_t>(rest, 8) & kEncryptedFlag) return Unsupported(where, " is encrypted");
    if (Read<uint16_t>(rest, 10) != kStored || m.packed != m.size)
      return Unsupported(where, " is compressed; write the file with numpy.savez, not numpy.savez_compressed");
    rest = rest.subspan(kDirectorySize + name + extra + comment);

    if (!Inside(bytes, m.local, kLocalSize) || Read<uint32_t>(bytes, m.local) != kLocal) return Corrupt(where, " is damaged: its header is missing");
    const uint64_t data = m.local + kLocalSize + Read<uint16_t>(bytes, m.local + 26) + Read<uint16_t>(bytes, m.local + 28);
    if (!Inside(bytes, data, m.size)) return Corrupt(where, " of ", m.size, " bytes reaches past the end of the file, which is truncated or damaged");
    m.data = bytes.subspan(data, m.size);
    extents.emplace_back(m.local, data + m.size);
    if (!names.insert(m.name).second) return Corrupt(file, " has two members named '", m.name, "'");
    members.push_back(m);
  }
  std::sort(extents.begin(), extents.end());
  for (size_t i = 1; i < extents.size(); ++i)
    if (extents[i].first < extents[i - 1].second) return Corrupt(file, " is damaged: two of its members overlap at offset ", extents[i].first);
  return members;
}

class Record {
 public:
  template <class T>
  Record& Put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  Record& Put(const std::string& text) {
    bytes_ += text;
    return *this;
  }
  Status WriteTo(AtomicFile& file) const { return file.Write(bytes_.data(), bytes_.size()); }

 private:
  std::string bytes_;
};

struct Written {
  std::string name, header;
  uint64_t size = 0, offset = 0;
  uint32_t crc = 0;
  bool wide() const { return size >= UINT32_MAX || offset >= UINT32_MAX; }
};

uint32_t Narrow(uint64_t value, bool wide) { return wide ? UINT32_MAX : static_cast<uint32_t>(value); }

// What the header before a member and its entry in the directory have in common, from the version to the CRC.
void PutCommon(Record& record, const Written& w) {
  const bool ascii = std::all_of(w.name.begin(), w.name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  record.Put(w.wide() ? kVersion64 : kVersion).Put(ascii ? uint16_t{0} : kUtf8Flag).Put(kStored).Put(uint16_t{0}).Put(kFirstOfJanuary1980).Put(w.crc);
  record.Put(Narrow(w.size, w.wide())).Put(Narrow(w.size, w.wide())).Put(static_cast<uint16_t>(w.name.size()));
}

Record LocalHeader(const Written& w) {
  Record r;
  r.Put(kLocal);
  PutCommon(r, w);
  r.Put(static_cast<uint16_t>(w.wide() ? 20 : 0)).Put(w.name);
  if (w.wide()) r.Put(kZip64Field).Put(uint16_t{16}).Put(w.size).Put(w.size);
  return r;
}

Record DirectoryEntry(const Written& w) {
  Record r;
  r.Put(kDirectory).Put(w.wide() ? kVersion64 : kVersion);
  PutCommon(r, w);
  r.Put(static_cast<uint16_t>(w.wide() ? 28 : 0)).Put(uint16_t{0}).Put(uint16_t{0}).Put(uint16_t{0}).Put(uint32_t{0}).Put(Narrow(w.offset, w.wide()));
  r.Put(w.name);
  if (w.wide()) r.Put(kZip64Field).Put(uint16_t{24}).Put(w.size).Put(w.size).Put(w.offset);
  return r;
}

Record End(uint64_t entries, uint64_t begin, uint64_t end) {
  Record r;
  const bool wide = entries >= UINT16_MAX || end >= UINT32_MAX;
  if (wide) {
    r.Put(kEnd64).Put(uint64_t{kEnd64Size - 12}).Put(kVersion64).Put(kVersion64).Put(uint32_t{0}).Put(uint32_t{0});
    r.Put(entries).Put(entries).Put(end - begin).Put(begin);
    r.Put(kEnd64Locator).Put(uint32_t{0}).Put(end).Put(uint32_t{1});
  }
  const uint16_t count = wide ? UINT16_MAX : static_cast<uint16_t>(entries);
  r.Put(kEnd).Put(uint16_t{0}).Put(uint16_t{0}).Put(count).Put(count).Put(Narrow(end - begin, wide)).Put(Narrow(begin, wide)).Put(uint16_t{0});
  return r;
}

}  // namespace

Result<std::vector<NamedArray>> ParseNpz(Bytes bytes, const std::string& name) {
  const std::string file = StrCat("'", name, "'");
  DT_ASSIGN_OR_RETURN(const std::vector<Member> members, ReadMembers(bytes, file));
  std::vector<NamedArray> arrays;
  for (const Member& m : members) {
    if (!m.name.ends_with(kEnding)) return Unsupported(file, ": member '", m.name, "' is no array: its name does not end in .npy");
    const std::string array(m.name.substr(0, m.name.size() - kEnding.size())), where = StrCat(file, ": array '", array, "'");
    if (Crc32(m.data) != m.crc) return Corrupt(where, " is damaged: its bytes do not match their checksum");
    DT_ASSIGN_OR_RETURN(NamedArray parsed, ParseNpy(m.data, array, where));
    arrays.push_back(std::move(parsed));
  }
  return arrays;
}

Status SaveNpz(const std::string& path, std::span<const NamedArray> arrays) {
  std::vector<Written> members;
  std::unordered_set<std::string_view> names;
  for (const NamedArray& a : arrays) {
    const std::string where = StrCat("cannot write '", path, "': array '", a.name, "'");
    if (!names.insert(a.name).second) return InvalidArgument(where, " is there twice");
    if (a.name.size() + kEnding.size() > UINT16_MAX)
      return InvalidArgument("cannot write '", path, "': an array's name has ", a.name.size(), " bytes, too many for a zip archive");
    DT_ASSIGN_OR_RETURN(std::string header, PrintNpyHeader(a.dtype, a.shape, where));
    DT_ASSIGN_OR_RETURN(const uint64_t needed, ArrayBytes(a.dtype, a.shape, where));
    if (needed != a.data.size()) return InvalidArgument(where, " needs ", needed, " bytes for its shape, and has ", a.data.size());
    const uint32_t crc = Crc32(a.data, Crc32(std::as_bytes(std::span(header))));
    members.push_back({StrCat(a.name, kEnding), std::move(header), 0, 0, crc});
    members.back().size = members.back().header.size() + a.data.size();
  }
  DT_ASSIGN_OR_RETURN(const auto file, AtomicFile::Create(path));
  for (size_t i = 0; i < members.size(); ++i) {
    members[i].offset = file->offset();
    DT_RETURN_IF_ERROR(LocalHeader(members[i]).WriteTo(*file));
    DT_RETURN_IF_ERROR(file->Write(members[i].header.data(), members[i].header.size()));
    DT_RETURN_IF_ERROR(file->Write(arrays[i].data.data(), arrays[i].data.size()));
  }
  const uint64_t begin = file->offset();
  for (const Written& m : members) DT_RETURN_IF_ERROR(DirectoryEntry(m).WriteTo(*file));
  DT_RETURN_IF_ERROR(End(members.size(), begin, file->offset()).WriteTo(*file));
  return file->Commit();
}

}  // namespace dovetail
