#include "core/dtype.h"

#include <iterator>

namespace dovetail {
namespace {
struct Info {
  std::string_view name;
  size_t size;
};
constexpr Info kInfo[] = {{"none", 0}, {"bool", 1}, {"u8", 1},  {"i8", 1},   {"i16", 2}, {"i32", 4}, {"i64", 8},
                          {"u16", 2},  {"u32", 4},  {"f16", 2}, {"bf16", 2}, {"f32", 4}, {"f64", 8}, {"c64", 8}};
}  // namespace

size_t ByteSize(DType t) { return kInfo[static_cast<size_t>(t)].size; }
std::string_view Name(DType t) { return kInfo[static_cast<size_t>(t)].name; }

DType DTypeFromName(std::string_view name) {
  for (size_t i = 1; i < std::size(kInfo); ++i)
    if (kInfo[i].name == name) return static_cast<DType>(i);
  return DType::kNone;
}

DType Promote(DType a, DType b) {
  if (a == b) return a;
  if (a == DType::kNone) return b;
  if (b == DType::kNone) return a;
  if (IsComplex(a) || IsComplex(b)) return DType::kC64;
  if (IsFloat(a) != IsFloat(b)) return IsFloat(a) ? a : b;
  if (IsFloat(a)) {
    if (a == DType::kF64 || b == DType::kF64) return DType::kF64;
    return DType::kF32;  // f16 with bf16, or either with f32
  }
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  auto is_unsigned = [](DType t) { return t == DType::kU8 || t == DType::kU16 || t == DType::kU32; };
  if (is_unsigned(a) == is_unsigned(b)) return ByteSize(a) >= ByteSize(b) ? a : b;
  const DType s = is_unsigned(a) ? b : a, u = is_unsigned(a) ? a : b;
  if (ByteSize(s) > ByteSize(u)) return s;
  return ByteSize(u) == 1 ? DType::kI16 : ByteSize(u) == 2 ? DType::kI32 : DType::kI64;
}

float HalfToFloat(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 0x1f, mantissa = h & 0x3ffu;
  uint32_t bits;
  if (exponent == 0x1f) {
    bits = sign | 0x7f800000u | (mantissa << 13);
  } else if (exponent != 0) {
    bits = sign | ((exponent + 112) << 23) | (mantissa << 13);
  } else {
    const float f = static_cast<float>(mantissa) * 0x1p-24f;  // zero or subnormal
    return sign ? -f : f;
  }
  return __builtin_bit_cast(float, bits);
}

uint16_t FloatToHalf(float f) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, f);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // rounds to 65520 or more
  if (magnitude < 0x38800000u) {                        // subnormal half: let the float adder round to nearest even
    const float scaled = __builtin_bit_cast(float, magnitude) + 0.5f;
    return sign | static_cast<uint16_t>(__builtin_bit_cast(uint32_t, scaled) - 0x3f000000u);
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return sign | static_cast<uint16_t>((rounded - 0x38000000u) >> 13);
}

uint16_t FloatToBFloat16(float f) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace dovetail
