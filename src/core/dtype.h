// Element types. The numbering is our own; files' numberings are converted where they are read (import, format).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace dovetail {

enum class DType : uint8_t { kNone, kBool, kU8, kI8, kI16, kI32, kI64, kU16, kU32, kF16, kBF16, kF32, kF64, kC64 };

// Bytes of one element; 0 for kNone. kC64 is a pair of f32.
size_t ByteSize(DType t);
// "f32", "i64", "bool", ...
std::string_view Name(DType t);
// The inverse of Name; kNone for an unknown name.
DType DTypeFromName(std::string_view name);

inline bool IsFloat(DType t) { return t == DType::kF16 || t == DType::kBF16 || t == DType::kF32 || t == DType::kF64; }
inline bool IsInteger(DType t) { return t >= DType::kU8 && t <= DType::kU32; }
inline bool IsComplex(DType t) { return t == DType::kC64; }

// PyTorch's promotion of two tensor dtypes of rank >= 1 (torch.promote_types), over the types above.
DType Promote(DType a, DType b);

float HalfToFloat(uint16_t h);
uint16_t FloatToHalf(float f);
inline float BFloat16ToFloat(uint16_t b) {
  const uint32_t bits = static_cast<uint32_t>(b) << 16;
  return __builtin_bit_cast(float, bits);
}
// Rounds to nearest even; NaN stays NaN.
uint16_t FloatToBFloat16(float f);

}  // namespace dovetail
