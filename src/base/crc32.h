// The checksum of zip archives (CRC-32 of ISO 3309, polynomial 0xedb88320 reflected). A device links no zlib.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace dovetail {
namespace internal {

// kCrcTables[k][b]: the effect of byte b that k more bytes follow.
inline constexpr auto kCrcTables = [] {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t c = b;
    for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) ? 0xedb88320u : 0);
    tables[0][b] = c;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t b = 0; b < 256; ++b) tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xff];
  return tables;
}();

}  // namespace internal

// `crc` is that of the bytes before, 0 at the start.
inline uint32_t Crc32(std::span<const std::byte> bytes, uint32_t crc = 0) {
  const auto& t = internal::kCrcTables;
  uint32_t c = ~crc;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t v;
    std::memcpy(&v, bytes.data() + i, 8);
    v ^= c;
    c = t[7][v & 0xff] ^ t[6][(v >> 8) & 0xff] ^ t[5][(v >> 16) & 0xff] ^ t[4][(v >> 24) & 0xff] ^ t[3][(v >> 32) & 0xff] ^ t[2][(v >> 40) & 0xff] ^
        t[1][(v >> 48) & 0xff] ^ t[0][v >> 56];
  }
  for (; i < bytes.size(); ++i) c = (c >> 8) ^ t[0][(c ^ static_cast<uint32_t>(bytes[i])) & 0xff];
  return ~c;
}

}  // namespace dovetail
