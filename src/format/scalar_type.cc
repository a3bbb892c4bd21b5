#include "format/scalar_type.h"

namespace dovetail {
namespace {
struct Pair {
  DType ours;
  pte::ScalarType theirs;
};
constexpr Pair kPairs[] = {
    {DType::kBool, pte::ScalarType::BOOL},  {DType::kU8, pte::ScalarType::BYTE},      {DType::kI8, pte::ScalarType::CHAR},
    {DType::kI16, pte::ScalarType::SHORT},  {DType::kI32, pte::ScalarType::INT},      {DType::kI64, pte::ScalarType::LONG},
    {DType::kU16, pte::ScalarType::UINT16}, {DType::kU32, pte::ScalarType::UINT32},   {DType::kF16, pte::ScalarType::HALF},
    {DType::kF32, pte::ScalarType::FLOAT},  {DType::kF64, pte::ScalarType::DOUBLE},   {DType::kBF16, pte::ScalarType::BFLOAT16},
};
}  // namespace

DType FromScalarType(pte::ScalarType type) {
  for (const Pair& p : kPairs)
    if (p.theirs == type) return p.ours;
  return DType::kNone;
}

bool ToScalarType(DType type, pte::ScalarType* out) {
  for (const Pair& p : kPairs)
    if (p.ours == type) {
      *out = p.theirs;
      return true;
    }
  return false;
}

}  // namespace dovetail
