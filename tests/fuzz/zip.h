// A zip archive of stored members, taken apart and put together again, so that a mutation of one member leaves the archive whole.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::fuzz {

using Bytes = std::vector<uint8_t>;

struct ZipMember {
  std::string name;
  Bytes data;
};

namespace internal {
template <class T>
T Read(const Bytes& bytes, size_t at) {
  T v;
  std::memcpy(&v, bytes.data() + at, sizeof v);
  return v;
}
template <class... Ts>
void Put(Bytes& bytes, Ts... values) {
  (bytes.insert(bytes.end(), reinterpret_cast<const uint8_t*>(&values), reinterpret_cast<const uint8_t*>(&values) + sizeof values), ...);
}
inline uint32_t Crc(const Bytes& bytes) {
  uint32_t c = ~0u;
  for (uint8_t b : bytes) {
    c ^= b;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) ? 0xedb88320u : 0);
  }
  return ~c;
}
}  // namespace internal

// Nothing for what is no such archive. Zip64 is not read: seeds are small.
inline std::optional<std::vector<ZipMember>> Unzip(const Bytes& bytes) {
  using internal::Read;
  if (bytes.size() < 22 || Read<uint32_t>(bytes, bytes.size() - 22) != 0x06054b50) return std::nullopt;
  const size_t count = Read<uint16_t>(bytes, bytes.size() - 12);
  size_t at = Read<uint32_t>(bytes, bytes.size() - 6);
  std::vector<ZipMember> members;
  for (size_t i = 0; i < count; ++i) {
    if (at + 46 > bytes.size() || Read<uint32_t>(bytes, at) != 0x02014b50) return std::nullopt;
    const size_t size = Read<uint32_t>(bytes, at + 24), name = Read<uint16_t>(bytes, at + 28), local = Read<uint32_t>(bytes, at + 42);
    const size_t next = at + 46 + name + Read<uint16_t>(bytes, at + 30) + Read<uint16_t>(bytes, at + 32);
    if (next > bytes.size() || local + 30 > bytes.size() || Read<uint16_t>(bytes, at + 10) != 0) return std::nullopt;
    const size_t data = local + 30 + Read<uint16_t>(bytes, local + 26) + Read<uint16_t>(bytes, local + 28);
    if (data > bytes.size() || size > bytes.size() - data) return std::nullopt;
    members.push_back({std::string(bytes.begin() + at + 46, bytes.begin() + at + 46 + name), Bytes(bytes.begin() + data, bytes.begin() + data + size)});
    at = next;
  }
  return members;
}

// Members start at multiples of 64, as torch places them.
inline Bytes Zip(const std::vector<ZipMember>& members) {
  using internal::Put;
  Bytes bytes, directory;
  for (const ZipMember& m : members) {
    const uint32_t local = static_cast<uint32_t>(bytes.size()), crc = internal::Crc(m.data), size = static_cast<uint32_t>(m.data.size());
    const uint16_t name = static_cast<uint16_t>(m.name.size()), extra = static_cast<uint16_t>(4 + (64 - (local + 34 + name) % 64) % 64);
    Put(bytes, uint32_t{0x04034b50}, uint16_t{20}, uint16_t{0}, uint16_t{0}, uint32_t{0}, crc, size, size, name, extra);
    bytes.insert(bytes.end(), m.name.begin(), m.name.begin() + name);
    Put(bytes, uint16_t{0x4246}, static_cast<uint16_t>(extra - 4));
    bytes.resize(bytes.size() + extra - 4);
    bytes.insert(bytes.end(), m.data.begin(), m.data.end());
    Put(directory, uint32_t{0x02014b50}, uint16_t{20}, uint16_t{20}, uint16_t{0}, uint16_t{0}, uint32_t{0}, crc, size, size, name, uint16_t{0}, uint16_t{0},
        uint16_t{0}, uint16_t{0}, uint32_t{0}, local);
    directory.insert(directory.end(), m.name.begin(), m.name.begin() + name);
  }
  const uint32_t begin = static_cast<uint32_t>(bytes.size());
  const uint16_t count = static_cast<uint16_t>(members.size());
  bytes.insert(bytes.end(), directory.begin(), directory.end());
  Put(bytes, uint32_t{0x06054b50}, uint16_t{0}, uint16_t{0}, count, count, static_cast<uint32_t>(directory.size()), begin, uint16_t{0});
  return bytes;
}

}  // namespace dovetail::fuzz
