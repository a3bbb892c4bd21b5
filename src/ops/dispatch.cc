#include "ops/dispatch.h"

namespace dovetail {

template <class T>
ComputeOf<T> ReadElement(DType from, const void* data, int64_t i) {
  const auto read = [&]<class From>() { return Load(Convert<T>(Load(static_cast<const From*>(data)[i]))); };
  switch (from) {
    case DType::kBool: return read.template operator()<BoolElement>();
    case DType::kU8: return read.template operator()<uint8_t>();
    case DType::kI8: return read.template operator()<int8_t>();
    case DType::kI16: return read.template operator()<int16_t>();
    case DType::kI32: return read.template operator()<int32_t>();
    case DType::kI64: return read.template operator()<int64_t>();
    case DType::kU16: return read.template operator()<uint16_t>();
    case DType::kU32: return read.template operator()<uint32_t>();
    case DType::kF16: return read.template operator()<HalfElement>();
    case DType::kBF16: return read.template operator()<BFloat16Element>();
    case DType::kF32: return read.template operator()<float>();
    case DType::kF64: return read.template operator()<double>();
    case DType::kNone:
    case DType::kC64: break;
  }
  return {};
}

template ComputeOf<BoolElement> ReadElement<BoolElement>(DType, const void*, int64_t);
template ComputeOf<uint8_t> ReadElement<uint8_t>(DType, const void*, int64_t);
template ComputeOf<int8_t> ReadElement<int8_t>(DType, const void*, int64_t);
template ComputeOf<int16_t> ReadElement<int16_t>(DType, const void*, int64_t);
template ComputeOf<int32_t> ReadElement<int32_t>(DType, const void*, int64_t);
template ComputeOf<int64_t> ReadElement<int64_t>(DType, const void*, int64_t);
template ComputeOf<uint16_t> ReadElement<uint16_t>(DType, const void*, int64_t);
template ComputeOf<uint32_t> ReadElement<uint32_t>(DType, const void*, int64_t);
template ComputeOf<HalfElement> ReadElement<HalfElement>(DType, const void*, int64_t);
template ComputeOf<BFloat16Element> ReadElement<BFloat16Element>(DType, const void*, int64_t);
template ComputeOf<float> ReadElement<float>(DType, const void*, int64_t);
template ComputeOf<double> ReadElement<double>(DType, const void*, int64_t);

}  // namespace dovetail
